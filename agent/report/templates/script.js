"use strict";
// Opens the instance that a link names, filters the table, and sorts it by a click on a heading.
const open = () => {
  const part = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (part && part.tagName === "DETAILS") { part.open = true; part.scrollIntoView(); }
};
addEventListener("hashchange", open);
open();
const table = document.querySelector("table.rows");
if (table) {
  const rows = [...table.tBodies[0].rows];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const shown = document.getElementById("shown");
  const filter = document.getElementById("filter");
  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/);
    let number = 0;
    rows.forEach((row, i) => {
      row.hidden = !words.every((word) => texts[i].includes(word));
      number += row.hidden ? 0 : 1;
    });
    shown.textContent = number + (number === 1 ? " instance" : " instances");
  };
  filter.addEventListener("input", apply);
  apply();
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
  };
  let last = null;
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.addEventListener("click", () => {
      const sign = last === head ? -1 : 1;
      last = sign === 1 ? head : null;
      const order = [...rows].sort((a, b) => {
        const x = value(a, column), y = value(b, column);
        return sign * (x < y ? -1 : x > y ? 1 : 0);
      });
      table.tBodies[0].append(...order);
    });
  });
}
