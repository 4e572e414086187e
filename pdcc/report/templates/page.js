"use strict";
(() => {
  // How text begins that a spreadsheet takes for a formula.
  const formula = /^\s*[=+\-@\t\r]/;
  const order = new Intl.Collator("en", { numeric: true });
  const textOf = (cell) => (cell.dataset.value ?? cell.textContent).replace(/\s+/g, " ").trim();
  const csvOf = (text) => '"' + (formula.test(text) ? "'" + text : text).replace(/"/g, '""') + '"';

  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    const titles = heads.map(textOf);
    const rows = [...body.rows];

    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = titles[column];
      head.replaceChildren(button);
      const number = (row) => Number.parseFloat(textOf(row.cells[column]).replace(/,/g, ""));
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const compare = head.hasAttribute("data-number")
          ? (a, b) => (number(a) || 0) - (number(b) || 0)
          : (a, b) => order.compare(textOf(a.cells[column]), textOf(b.cells[column]));
        rows.sort(down ? (a, b) => compare(b, a) : compare);
        body.replaceChildren(...rows);
      });
    });

    const tools = document.querySelector(`[data-for="${table.id}"]`);
    const input = tools.querySelector("[data-filter]");
    const count = tools.querySelector("[data-count]");
    const filter = () => {
      const wanted = input.value.toLowerCase();
      let shown = 0;
      for (const row of rows) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = `${shown} of ${rows.length} ${count.dataset.what} shown`;
    };
    input.addEventListener("input", filter);
    filter();
    const save = tools.querySelector("[data-save]");
    save.addEventListener("click", () => {
      const lines = rows.filter((row) => !row.hidden).map((row) => [...row.cells].map(textOf));
      const text = [titles, ...lines].map((line) => line.map(csvOf).join(",")).join("\r\n") + "\r\n";
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
      link.download = save.dataset.save;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
    tools.hidden = false;
  }

  // What is folded is printed too.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
})();
