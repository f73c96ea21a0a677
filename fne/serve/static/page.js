"use strict";
// The page of `fne serve`. Everything that comes from the catalog is shown as text, never as HTML.

const $ = (id) => document.getElementById(id);
const state = { status: null, asked_text: null, found: null, photo: null, asked: 0, opened: 0, news: false, silent: false, home: false };

// Requests -----------------------------------------------------------------------------------------------------------

async function ask(path, parameters, options) {
  const given = Object.entries(parameters ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given);
  const response = await fetch(query.size ? `${path}?${query}` : path, options);
  if (!response.ok) {
    const answer = await response.json().catch(() => ({ error: "The server is busy; try again in a moment." }));
    throw Object.assign(new Error(answer.error), { code: response.status });
  }
  const answer = await response.json();
  return answer;
}

const filters = () => {
  const inFolder = $("where").value === "folder";
  return { in: $("where").value, split: inFolder ? "" : $("split").value, tag: inFolder ? "" : $("tag").value.trim() };
};

// The filters of the catalog do not apply to photos of a folder.
function enableFilters() {
  $("split").disabled = $("tag").disabled = $("where").value === "folder";
}

// Elements -----------------------------------------------------------------------------------------------------------

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

const score = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(4));

// An image, with rank and score if it was found. Of a sentence only the text is shown, because several of one
// image often follow each other.
function card(match, open, sentence = false) {
  const button = element("button", undefined, "match");
  button.type = "button";
  if (match.picture && !sentence) {
    const picture = element("img");
    picture.src = `/api/pictures/${match.picture}`;
    picture.alt = "";
    picture.loading = "lazy";
    picture.onerror = () => picture.replaceWith(element("span", "no picture", "none"));
    button.append(picture);
  } else if (!sentence) {
    button.append(element("span", "no picture", "none"));
  }
  const says = element("span", undefined, "says");
  const line = element("span", undefined, "line");
  if (match.rank) line.append(element("span", `${match.rank}`), element("span", score(match.score)));
  if (match.true) {
    const star = element("span", "★", "star");
    star.title = "The catalog pairs it with the query";
    star.append(element("span", " paired with the query", "unseen"));
    line.append(star);
  }
  says.append(line, element("bdi", match.sentences[0] ?? match.name));
  if (sentence) says.append(element("bdi", match.name, "soft"));
  button.append(says);
  button.title = match.name;
  button.addEventListener("click", () => open(match));
  const item = element("li");
  item.append(button);
  return item;
}

function say(text) {
  $("status").textContent = text;
}

function warn(id, text) {
  $(id).hidden = !text;
  $(id).textContent = text ?? "";
}

// Searching ----------------------------------------------------------------------------------------------------------

function fillMatches(matches, sentences = false) {
  $("matches").classList.toggle("sentences", sentences);
  $("matches").replaceChildren(...matches.map((match) => card(match, open, sentences)));
}

// What is shown before anything is asked: pictures of the catalog.
function home() {
  state.home = true;
  state.found = state.asked_text = null;
  state.asked++;
  $("results").removeAttribute("aria-busy");
  $("examples").hidden = false;
  warn("unknown", null);
  const samples = state.status?.samples ?? [];
  fillMatches(samples);
  say(samples.length ? `${samples.length} of the ${state.status.images.toLocaleString("en")} images of the catalog:` : "");
}

async function show(request, title) {
  const number = ++state.asked;
  state.home = false;
  const started = performance.now();
  $("examples").hidden = true;
  if (state.news) news(null);
  say("Searching…");
  $("results").setAttribute("aria-busy", "true");
  let answer;
  try {
    answer = await request();
  } catch (error) {
    if (number !== state.asked) return;
    $("results").removeAttribute("aria-busy");
    $("matches").replaceChildren();
    warn("unknown", null);
    say(error.message || "The server does not answer.");
    return;
  }
  if (number !== state.asked) return; // a later question has been asked
  $("results").removeAttribute("aria-busy");
  fillMatches(answer.matches, answer.found === "sentences");
  state.found = answer.found;
  state.asked_text = answer.text;
  const words = answer.unknown_words;
  warn("unknown", words.length ? `Not in the vocabulary, and ignored: ${words.join(", ")}` : null);
  const seconds = ((performance.now() - started) / 1000).toFixed(2);
  const stars = answer.matches.filter((match) => match.true).length;
  const paired = stars ? `, ${stars} paired with the query (★)` : "";
  say(`${title}: best ${answer.matches.length} of ${answer.candidates.toLocaleString("en")} ${answer.found} of ${answer.pool}, by ${answer.by} (${answer.measure}), ${seconds} s${paired}`);
}

function searchText() {
  const text = $("text").value.trim();
  if (!text) return;
  closePhoto(false);
  address({ q: text, ...filters() });
  show(() => ask("/api/search", { text, ...filters() }), `Images for “${text}”`);
}

function searchPhoto() {
  const layer = $("photo-layer").value;
  const sentences = document.querySelector("input[name=show]:checked").value === "sentences";
  $("photo-layer-label").hidden = sentences;
  const request = (photo) => (sentences ? ask("/api/sentences", { photo, k: 24 }) : ask("/api/similar", { photo, layer, ...filters() }));
  show(async () => {
    try {
      return await request(state.photo.digest);
    } catch (error) {
      if (error.code !== 404) throw error;
      await send(state.photo.file); // the server has loaded new artifacts since
      return request(state.photo.digest);
    }
  }, sentences ? "Sentences for your photo" : "Look-alikes of your photo");
}

const send = (file) => ask("/api/photos", {}, { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } });

async function takePhoto(file) {
  if (!file) return;
  closePhoto(false);
  const number = ++state.asked;
  state.home = false;
  $("text").value = "";
  $("examples").hidden = true;
  $("photo").hidden = false;
  $("photo-picture").src = URL.createObjectURL(file);
  $("photo-name").textContent = file.name ?? "";
  $("photo-says").textContent = "";
  $("matches").replaceChildren();
  warn("unknown", null);
  const limits = state.status?.limits;
  if (limits && file.size > limits.bytes) {
    say(`The photo has ${(file.size / 2 ** 20).toFixed(1)} MB; at most ${limits.bytes / 2 ** 20} are allowed.`);
    return;
  }
  say(state.status?.network === "loading" ? "The network is being loaded; your photo comes next…" : "Your photo goes through the network…");
  let sent;
  try {
    sent = await send(file);
  } catch (error) {
    if (number === state.asked) say(error.message || "The photo could not be sent.");
    return;
  }
  if (number !== state.asked) return;
  state.photo = { digest: sent.photo, file };
  address({});
  if (!state.status?.sentences || $("where").value === "folder") document.querySelector("input[name=show][value=similar]").checked = true;
  searchPhoto();
  describePhoto();
}

async function describePhoto() {
  if (!state.status?.descriptions.length) return;
  const digest = state.photo.digest;
  try {
    const said = await ask("/api/description", { photo: digest });
    if (state.photo?.digest === digest) $("photo-says").textContent = summary(said).join(" · ");
  } catch (error) {
    $("photo-says").textContent = error.message;
  }
}

const summary = (said) => [said.caption, said.tags.length ? `tags: ${said.tags.join(", ")}` : ""].filter(Boolean);

function closePhoto(clear = true) {
  if (!$("photo").hidden) URL.revokeObjectURL($("photo-picture").src);
  state.photo = null;
  $("photo").hidden = true;
  $("file").value = "";
  if (clear) {
    home();
    $("text").focus();
  }
}

function again() {
  enableFilters();
  if (state.photo) searchPhoto();
  else searchText();
}

// The address keeps the query and the filters, so that they can be repeated and left with "back".
function address(query) {
  const given = Object.entries(query).filter(([name, value]) => value && !(name === "in" && value === "catalog"));
  const wanted = `?${new URLSearchParams(given)}`;
  if (wanted !== location.search && !(wanted === "?" && !location.search)) history.pushState(null, "", wanted === "?" ? "/" : wanted);
}

// One image ----------------------------------------------------------------------------------------------------------

async function open(match) {
  const named = match.image !== null ? { image: match.image } : { photo: match.picture };
  const number = ++state.opened;
  let found;
  try {
    found = await ask("/api/image", named);
  } catch (error) {
    say(error.message);
    return;
  }
  if (number !== state.opened) return;
  offerWords(match, named);
  $("details-name").textContent = found.name ?? "Photo";
  $("details-picture").hidden = !found.picture;
  if (found.picture) $("details-picture").src = `/api/pictures/${found.picture}?size=large`;
  $("details-picture").alt = found.sentences[0] ?? "";
  const size = found.width ? `${found.width} × ${found.height} pixels` : "";
  $("details-facts").textContent = [found.split && `split ${found.split}`, size].filter(Boolean).join(", ");
  $("details-sentences-title").textContent = "Sentences";
  list("details-sentences", found.sentences);
  $("details-tags").replaceChildren(...found.tags.map(tagButton));
  if (!found.tags.length) $("details-tags").textContent = "None in the catalog.";
  $("details-features").textContent = `Features: ${found.features}. Version ${found.version}.`;
  $("details-made").replaceChildren(...found.made.flatMap(made));
  $("details-description").hidden = true;
  if (!$("details").open) $("details").showModal();
  $("details").scrollTop = 0;
  $("details").dataset.named = JSON.stringify(named);
  const fitting = found.sentences.length ? null : fittingSentences(named, number);
  await Promise.allSettled([describe(named, number), lookAlikes(named, number), fitting]);
}

// What the model would say about an image without sentences of its own, such as a photo of the folder.
async function fittingSentences(named, number) {
  if (!state.status?.sentences) return;
  const found = await ask("/api/sentences", { ...named, k: 5 });
  if (number !== state.opened) return;
  $("details-sentences-title").textContent = "Sentences of the catalog that fit best";
  list("details-sentences", found.matches.map((match) => `${match.sentences[0]} (${score(match.score)})`));
}

// The words of the query for an image that was found, or those of a sentence that was found for a photo.
function offerWords(match, named) {
  const sentence = state.photo && state.found === "sentences" && { text: match.sentences[0], photo: state.photo.digest };
  const asked = match.score === undefined ? null : sentence || (state.asked_text && { text: state.asked_text, ...named });
  $("details-words").hidden = !asked;
  $("words-shown").replaceChildren();
  $("words-legend").hidden = true;
  $("words-ask").hidden = false;
  $("words-ask").onclick = () => showWords(asked, state.opened);
}

async function showWords(asked, number) {
  let said;
  try {
    said = await ask("/api/words", asked);
  } catch (error) {
    said = { words: [{ text: error.message, drop: 0, level: 0 }] };
  }
  if (number !== state.opened) return;
  const words = said.words.flatMap((each, place) => {
    const word = element("span", each.text, "word");
    word.dataset.level = each.level;
    word.title = `${each.drop < 0 ? "" : "+"}${each.drop.toFixed(3)}`;
    return place && /^[\p{L}\p{N}]/u.test(each.text) ? [" ", word] : [word];
  });
  $("words-shown").replaceChildren(...words);
  $("words-ask").hidden = true;
  $("words-legend").hidden = said.words.length < 2;
}

function tagButton(tag) {
  const button = element("button", tag);
  button.type = "button";
  button.title = "Search only images with this tag";
  button.addEventListener("click", () => {
    $("tag").value = tag;
    $("details").close();
    again();
  });
  return button;
}

function list(id, texts) {
  const items = texts.map((text) => {
    const item = element("li");
    item.append(element("bdi", text));
    return item;
  });
  $(id).replaceChildren(...(items.length ? items : [element("li", "None in the catalog.", "soft")]));
}

function made(each) {
  const settings = Object.entries(each.settings).map(([key, value]) => `${key}: ${value}`);
  return [element("dt", `${each.name} ${each.digest.slice(0, 12)}…`), element("dd", settings.join(" · "))];
}

async function describe(named, number) {
  if (!state.status?.descriptions.length) return; // the notes below the page say how to make such models
  const said = await ask("/api/description", named);
  if (number !== state.opened) return;
  $("details-description").hidden = false;
  $("details-caption").textContent = said.caption ?? "";
  $("details-model-tags").textContent = said.tags.length ? `Tags: ${said.tags.join(", ")}` : "";
  const concepts = Object.entries(said.concepts).map(([name, value]) => `${name} ${value.toFixed(2)}`);
  $("details-concepts").textContent = concepts.join(" · ");
  const tuned = said.models.some((each) => each.tuned);
  const models = said.models.map((each) => `the ${each.tuned ? "tuned" : "fixed"} ${each.name}`);
  $("details-models").textContent = tuned ? `By ${models.join(" and ")}` : "";
}

async function lookAlikes(named, number) {
  $("details-similar").hidden = !state.status?.embedding;
  if (!state.status?.embedding) return;
  try {
    const found = await ask("/api/similar", { ...named, layer: $("layer").value, in: $("where").value, k: 12 });
    if (number !== state.opened) return;
    $("similar").replaceChildren(...found.matches.map((match) => card(match, open)));
    $("similar-status").textContent = `among ${found.candidates.toLocaleString("en")} images of ${found.pool}, by ${found.by} (${found.measure})`;
  } catch (error) {
    $("similar").replaceChildren();
    $("similar-status").textContent = error.message;
  }
}

// Status -------------------------------------------------------------------------------------------------------------

async function refresh() {
  let found;
  try {
    found = await ask("/api/status");
  } catch (error) {
    news(error.code === 401 ? error.message : "The server does not answer.");
    state.silent = true;
    setTimeout(refresh, 5000);
    return;
  }
  const before = state.status;
  state.status = found;
  if (before?.version !== found.version) fill(found);
  const folder = found.folder;
  const changed = before?.folder?.version && folder.version && before.folder.version !== folder.version;
  if (found.waiting) news(`New artifacts are not complete yet, and the earlier ones are used: ${found.waiting}`);
  else if (before && before.version !== found.version) news("New artifacts were loaded; search again for new results.");
  else if (changed && $("where").value === "folder") news(`The folder “${folder.name}” has changed; search again for new results.`);
  else if (found.network === "failed" && before?.network !== "failed") warn("notice", `Photos of your own cannot be searched: ${found.network_message}`);
  else if (before?.waiting || state.silent) news(null);
  state.silent = false;
  progress(found.folder);
  const busy = found.network === "loading" || ["reading", "indexing"].includes(found.folder?.state);
  setTimeout(refresh, busy ? 1000 : 5000);
}

// What is shown until the next search.
function news(text) {
  state.news = Boolean(text);
  warn("notice", text);
}

function fill(found) {
  options($("split"), [["", "all"], ...Object.entries(found.splits).map(([name, count]) => [name, `${name} (${count.toLocaleString("en")})`])]);
  $("split-label").hidden = Object.keys(found.splits).length < 2;
  $("tag-label").hidden = !Object.keys(found.tags).length;
  $("tags").replaceChildren(...Object.entries(found.tags).map(([name, count]) => Object.assign(element("option", `${count} images`), { value: name })));
  const layers = [["", found.embedding === "fne" ? "the full network" : found.embedding ?? ""], ...found.layers.map((name) => [name, `layer ${name}`])];
  options($("layer"), layers);
  options($("photo-layer"), layers);
  const where = [["catalog", "the catalog"]];
  if (found.folder) where.push(["folder", `the folder ${found.folder.name}`]);
  options($("where"), where);
  $("where-label").hidden = where.length < 2;
  $("text").disabled = !found.sentences;
  if (!found.sentences) $("text").placeholder = "There is no trained model; drop a photo";
  $("facts").textContent = `${found.images.toLocaleString("en")} images, ${found.captions.toLocaleString("en")} sentences; ${found.features}.`;
  $("notes").replaceChildren(...found.notes.map((note) => element("li", note)));
  $("examples").replaceChildren(element("span", found.sentences ? "For example:" : ""), ...found.examples.map(example));
  if (state.home) home();
}

function example(text) {
  const button = element("button");
  button.type = "button";
  button.append(element("bdi", text));
  button.addEventListener("click", () => {
    $("text").value = text;
    searchText();
  });
  return button;
}

function options(select, wanted) {
  const chosen = select.value;
  select.replaceChildren(...wanted.map(([value, text]) => Object.assign(element("option", text), { value })));
  if (wanted.some(([value]) => value === chosen)) select.value = chosen;
}

function progress(folder) {
  if (!folder || folder.state === "ready") {
    const bad = Object.keys(folder?.unreadable ?? {}).length;
    warn("folder", bad ? `${bad} ${bad > 1 ? "files" : "file"} of the folder “${folder.name}” cannot be read: ${reasons(folder.unreadable)}` : null);
    return;
  }
  const before = folder.photos === null ? null : `${folder.photos.toLocaleString("en")} photos`;
  if (folder.state === "failed") {
    const fault = before ? `has changed. Its ${before} of before are searched` : "cannot be searched";
    return warn("folder", `The folder “${folder.name}” ${fault}: ${folder.message}`);
  }
  const counted = folder.total ? `${folder.done} of ${folder.total} ${before ? "new " : ""}photos` : "reading its files";
  warn("folder", `The folder “${folder.name}” is being indexed: ${counted}. ${before ? `Its ${before} of before` : "The catalog"} can be searched meanwhile.`);
}

function reasons(unreadable) {
  const all = Object.entries(unreadable).map(([name, reason]) => `${name} (${reason})`);
  return all.length > 3 ? `${all.slice(0, 3).join(", ")}, …` : all.join(", ");
}

// Keyboard -----------------------------------------------------------------------------------------------------------

function move(event) {
  const cards = [...document.querySelectorAll($("details").open ? "#similar .match" : "#matches .match")];
  const place = cards.indexOf(document.activeElement);
  if (place < 0) {
    if (event.key === "ArrowDown" && document.activeElement === $("text") && cards.length) {
      cards[0].focus();
      event.preventDefault();
    }
    return;
  }
  const row = cards.filter((each) => each.offsetTop === cards[0].offsetTop).length || 1;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  if (place + step < 0 && !$("details").open) $("text").focus();
  else cards[Math.max(0, Math.min(cards.length - 1, place + step))].focus();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
  if (event.key === "/" && !typing && !$("details").open) {
    event.preventDefault();
    $("text").focus();
    $("text").select();
  } else if (event.key.startsWith("Arrow")) {
    move(event);
  }
});

// Wiring -------------------------------------------------------------------------------------------------------------

$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  searchText();
});
$("filters").addEventListener("submit", (event) => event.preventDefault());
for (const id of ["where", "split", "tag"]) $(id).addEventListener("change", again);
for (const each of document.querySelectorAll("input[name=show]")) each.addEventListener("change", searchPhoto);
$("photo-layer").addEventListener("change", searchPhoto);
$("photo-close").addEventListener("click", () => closePhoto());
$("file").addEventListener("change", () => takePhoto($("file").files[0]));
$("layer").addEventListener("change", () => lookAlikes(JSON.parse($("details").dataset.named), state.opened));
$("details").addEventListener("click", (event) => {
  if (event.target === $("details")) $("details").close(); // the backdrop
});
addEventListener("paste", (event) => {
  const file = [...event.clipboardData.files].find((each) => each.type.startsWith("image/"));
  if (!file) return;
  event.preventDefault();
  takePhoto(file);
});
addEventListener("dragover", (event) => {
  if (![...event.dataTransfer.types].includes("Files")) return;
  event.preventDefault();
  $("drop").hidden = false;
});
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) $("drop").hidden = true;
});
addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").hidden = true;
  takePhoto(event.dataTransfer.files[0]);
});
addEventListener("popstate", start);

function start() {
  const asked = new URLSearchParams(location.search);
  $("text").value = asked.get("q") ?? "";
  for (const [id, name] of [["where", "in"], ["split", "split"], ["tag", "tag"]]) $(id).value = asked.get(name) ?? (id === "where" ? "catalog" : "");
  enableFilters();
  if (asked.get("q")) searchText();
  else if (!state.photo) home();
}

refresh().then(start);
