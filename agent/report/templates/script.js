"use strict";
(() => {
  // Works on what the page holds; without it the page is longer, and all of it is there.
  const ROWS_AT_ONCE = 300;
  const byId = (id) => document.getElementById(id);
  const overview = byId("/overview");
  const table = byId("/table");

  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll(".current details")) one.open = true;
  });
  if (!table) return;
  history.scrollRestoration = "manual";

  // ------------------------------------------------------------------------------- the table
  const body = table.tBodies[0];
  const all = [...body.rows].map((row, index) => ({
    row,
    index,
    anchor: row.cells[0].querySelector("a").hash.slice(1),
    text: null,
    data: row.dataset,
  }));
  const form = byId("/filters");
  const status = byId("/count");
  const more = byId("/more");
  const state = { sort: "", down: false, limit: ROWS_AT_ONCE };
  let found = all;
  form.hidden = false;

  const headers = [...table.tHead.rows[0].cells];
  const columns = headers.map((cell) => cell.dataset.column);
  headers.forEach((cell) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...cell.childNodes);
    button.addEventListener("click", () => sortBy(cell.dataset.column));
    cell.append(button);
  });

  const value = (one, column) => {
    const cell = one.row.cells[columns.indexOf(column)];
    if (cell.dataset.v === undefined) return (cell.querySelector("a") ?? cell).textContent.trim();
    return cell.dataset.v === "" ? null : Number(cell.dataset.v);
  };

  const collator = new Intl.Collator("en", { numeric: true });
  const order = (x, y) => (typeof x === "string" ? collator.compare(x, y) : x - y);

  const compare = (column, down) => {
    const sign = down ? -1 : 1;
    const keys = new Map(all.map((one) => [one, value(one, column)]));
    return (a, b) => {
      const x = keys.get(a), y = keys.get(b);
      if (x === y) return a.index - b.index;
      if (x === null || x === "") return 1; // what is not known comes last, whatever the order
      if (y === null || y === "") return -1;
      return sign * order(x, y) || a.index - b.index;
    };
  };

  const fits = (one, wanted, words) => {
    for (const [name, choice] of wanted) if (one.data[name] !== choice) return false;
    if (!words.length) return true;
    one.text ??= one.row.textContent.toLowerCase();
    return words.every((word) => one.text.includes(word));
  };

  const update = () => {
    const values = new FormData(form);
    const words = String(values.get("q")).toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = [...values].filter(([name, v]) => name !== "q" && name !== "sort" && v !== "");
    found = all.filter((one) => fits(one, wanted, words));
    if (state.sort) found.sort(compare(state.sort, state.down));
    draw();
    const count = (n) => n.toLocaleString("en");
    status.textContent =
      found.length === all.length
        ? `${count(all.length)} ${all.length === 1 ? "instance" : "instances"}`
        : `${count(found.length)} of ${count(all.length)} ${all.length === 1 ? "instance" : "instances"}`;
    headers.forEach((cell) => {
      const own = cell.dataset.column === state.sort;
      cell.setAttribute("aria-sort", own ? (state.down ? "descending" : "ascending") : "none");
    });
    form.elements.sort.value = state.sort ? `${state.sort}${state.down ? "-" : ""}` : "";
  };

  const draw = () => {
    body.replaceChildren(...found.slice(0, state.limit).map((one) => one.row));
    more.hidden = found.length <= state.limit;
    byId("/none").hidden = found.length > 0;
  };

  const address = () => {
    const values = [...new FormData(form)].filter(([, v]) => v !== "");
    return values.length ? `#?${new URLSearchParams(values)}` : "#/overview";
  };

  const changed = () => {
    state.limit = ROWS_AT_ONCE;
    update();
    history.replaceState(null, "", address());
  };

  const sortBy = (column) => {
    const numbers = all.length && all[0].row.cells[columns.indexOf(column)].dataset.v !== undefined;
    state.down = state.sort === column ? !state.down : Boolean(numbers);
    state.sort = column;
    changed();
  };

  const restore = (query) => {
    const values = new URLSearchParams(query);
    for (const field of form.elements) if (field.name) field.value = values.get(field.name) ?? "";
    const sort = values.get("sort") ?? "";
    state.down = sort.endsWith("-");
    state.sort = columns.includes(sort.replace(/-$/, "")) ? sort.replace(/-$/, "") : "";
    update();
  };

  form.addEventListener("input", (event) => {
    if (event.target.name === "sort") {
      state.down = event.target.value.endsWith("-");
      state.sort = event.target.value.replace(/-$/, "");
    }
    changed();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    state.sort = "";
    setTimeout(changed);
  });
  more.addEventListener("click", () => {
    state.limit = more.dataset.all ? Infinity : state.limit + ROWS_AT_ONCE;
    draw();
  });

  // --------------------------------------------------------------------- pages and the way back
  const section = byId("/instances");
  const holders = new Map();
  for (const holder of section.querySelectorAll(":scope > details")) {
    holders.set(holder.lastElementChild.id, holder);
  }
  const title = document.title;
  let scrolled = 0;
  let current = null;

  const build = (place) => {
    const held = place.querySelector(":scope > noscript");
    if (!held) return;
    const template = document.createElement("template");
    template.innerHTML = held.textContent;
    held.replaceWith(template.content);
  };

  const leave = () => {
    if (!current) return;
    current.classList.remove("current");
    current.open = false;
    current = null;
  };

  const link = (name, one) => {
    const element = section.querySelector(`nav .${name}`);
    if (one) element.href = `#${one.anchor}`;
    else element.removeAttribute("href");
  };

  const pager = (anchor) => {
    const at = found.findIndex((one) => one.anchor === anchor);
    link("previous", at > 0 ? found[at - 1] : null);
    link("next", at >= 0 ? found[at + 1] : null);
    section.querySelector("nav .back").href = address();
    section.querySelector("nav .position").textContent =
      at < 0 ? "" : `${at + 1} of ${found.length}`;
  };

  const show = (anchor, holder) => {
    if (!current) scrolled = scrollY;
    leave();
    current = holder;
    const place = holder.lastElementChild;
    build(place);
    holder.classList.add("current");
    holder.open = true;
    overview.hidden = true;
    section.hidden = false;
    pager(anchor);
    document.title = `${place.dataset.name} · ${title}`;
    scrollTo(0, 0);
    place.querySelector("h2").focus({ preventScroll: true });
  };

  const home = (hash) => {
    const before = current && current.lastElementChild.id;
    leave();
    section.hidden = true;
    overview.hidden = false;
    document.title = title;
    if (before) {
      scrollTo(0, scrolled);
      const row = found.find((one) => one.anchor === before);
      if (row?.row.isConnected) row.row.querySelector("a").focus({ preventScroll: true });
    } else if (hash.startsWith("/") || hash.startsWith("?")) {
      byId(hash.startsWith("?") ? "/instances-heading" : hash)?.scrollIntoView();
    }
  };

  const route = () => {
    const hash = location.hash.slice(1);
    const holder = holders.get(hash);
    if (holder) {
      show(hash, holder);
      return;
    }
    if (`#${hash}` !== address()) restore(hash.startsWith("?") ? hash.slice(1) : "");
    home(hash);
  };

  addEventListener("hashchange", route);
  document.documentElement.classList.add("ready");
  update();
  route();
})();
