// Tables: a click on a heading sorts by it, a second one the other way round. Undefined values stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.querySelectorAll("th")];

  function sortBy(column) {
    const heading = headings[column];
    const ascending = heading.getAttribute("aria-sort") !== "ascending";
    const numeric = heading.classList.contains("number");
    const keyed = [...table.tBodies[0].rows].map((row) => ({row, text: row.cells[column].dataset.value}));
    keyed.sort((a, b) => {
      if (a.text === "" || b.text === "") return (a.text === "") - (b.text === "");
      const order = numeric ? Number(a.text) - Number(b.text) : a.text.localeCompare(b.text);
      return ascending ? order : -order;
    });
    headings.forEach((other) => other.setAttribute("aria-sort", "none"));
    heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    table.tBodies[0].append(...keyed.map((item) => item.row));
  }

  headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => sortBy(column)));
}
