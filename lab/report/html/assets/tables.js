// Tables that a click on a column's head sorts: numbers descending first, words ascending.

export function makeSortable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const numeric = body.rows[0]?.cells[column]?.dataset.value !== undefined;
      const before = head.getAttribute("aria-sort");
      const first = numeric ? "descending" : "ascending";
      const other = numeric ? "ascending" : "descending";
      const order = before === first ? other : first;
      for (const one of heads) one.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...body.rows].sort((a, b) => sign * compare(a.cells[column], b.cells[column], numeric));
      body.append(...rows);
    });
  });
}

function compare(a, b, numeric) {
  if (numeric) return Number(a.dataset.value) - Number(b.dataset.value);
  return a.textContent.localeCompare(b.textContent);
}
