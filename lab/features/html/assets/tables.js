// Tables that a click on a column's head sorts: numbers descending first, words ascending.

export function makeSortable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const numeric = "value" in (body.rows[0]?.cells[column].dataset ?? {});
      const orders = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
      const order = orders.find((one) => one !== head.ariaSort);
      for (const one of heads) one.ariaSort = one === head ? order : null;
      const [sign, key] = [order === "ascending" ? 1 : -1, (row) => row.cells[column]];
      body.append(...[...body.rows].sort((a, b) => sign * compare(key(a), key(b), numeric)));
    });
  });
}

function compare(a, b, numeric) {
  return numeric ? a.dataset.value - b.dataset.value : a.textContent.localeCompare(b.textContent);
}
