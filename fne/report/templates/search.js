// Search within the galleries: an example stays if it has every word that is looked for. Without
// this script everything is shown, and the choices beside the search box, which are plain CSS, work.
"use strict";

const folded = (text) => text.normalize("NFKC").toLowerCase();

for (const gallery of document.querySelectorAll(".gallery")) {
  const search = gallery.querySelector(".search");
  const box = search.querySelector("input");
  const found = search.querySelector("output");
  const examples = [...gallery.querySelectorAll(".example")];
  // Sentences and the names of files, not our own words around them.
  const texts = examples.map((example) =>
    folded([...example.querySelectorAll("bdi")].map((each) => each.textContent).join("\n")),
  );
  const show = () => {
    const words = folded(box.value).split(/\s+/).filter(Boolean);
    examples.forEach((example, number) => {
      example.hidden = !words.every((word) => texts[number].includes(word));
    });
    const shown = examples.filter((example) => getComputedStyle(example).display !== "none").length;
    found.textContent = words.length ? `${shown || "None"} of ${examples.length} shown` : "";
  };
  gallery.addEventListener("input", show);
  search.hidden = false;
  show(); // a browser may have kept what was typed before the page was loaded again
}
