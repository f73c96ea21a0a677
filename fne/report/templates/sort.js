// Sort a table by a column: a click on its heading, once for falling and once more for rising values.
// Without this script the table stays as it is.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];
  const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
  headings.forEach((heading, column) => {
    const button = heading.querySelector("button");
    button.disabled = false;
    button.addEventListener("click", () => {
      const falling = heading.ariaSort !== "descending";
      const numbers = heading.dataset.kind === "number";
      const rows = [...body.rows].sort((first, second) => {
        const [a, b] = [value(first, column), value(second, column)];
        return numbers ? Number(b) - Number(a) : a.localeCompare(b);
      });
      // Text begins with A, numbers with the largest one.
      body.append(...(falling ? rows : rows.reverse()));
      headings.forEach((each) => each.removeAttribute("aria-sort"));
      heading.ariaSort = falling ? "descending" : "ascending";
    });
  });
}
