// The answering page. Text from elsewhere enters it by textContent alone.
"use strict";

const byId = (id) => document.getElementById(id);
const KEYS = { s: "same", d: "different", u: "unsure", z: "undo" };
const RETRY_SECONDS = 2;

const state = { client: "", annotator: "", pair: null, undo: null, busy: false };

// Letters enough that no two pages or answers share one.
function madeUp() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

function pause(seconds) {
  return new Promise((done) => setTimeout(done, 1000 * seconds));
}

function say(text, isProblem = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("problem", isProblem);
}

// Send until the server has answered. The body stays the same, and with it its key: what arrived twice is kept once.
async function send(path, body) {
  for (;;) {
    try {
      const response = await fetch(path, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ client: state.client, annotator: state.annotator, ...body }),
      });
      const isJson = (response.headers.get("Content-Type") || "").startsWith("application/json");
      const found = isJson ? await response.json() : { error: await response.text() };
      if (response.status < 500) return { ok: response.ok, status: response.status, ...found };
      say(`${found.error || "The server failed."} Trying again.`, true);
    } catch {
      say("The server does not answer. This is not kept yet; trying again.", true);
    }
    await pause(RETRY_SECONDS);
  }
}

function showItem(section, item) {
  section.replaceChildren();
  section.scrollTop = 0;
  if (item.image !== null) {
    const image = document.createElement("img");
    image.alt = section.getAttribute("aria-label");
    image.addEventListener("error", () => {
      const note = document.createElement("p");
      note.className = "hint";
      note.textContent = "This image cannot be shown.";
      image.replaceWith(note);
    });
    image.src = item.image;
    section.append(image);
  }
  if (item.text !== null) {
    const text = document.createElement("p");
    text.className = "text";
    text.textContent = item.text;
    section.append(text);
  }
  if (item.fields.length) {
    const list = document.createElement("dl");
    for (const [name, value] of item.fields) {
      const term = document.createElement("dt");
      const cell = document.createElement("dd");
      term.textContent = name;
      cell.textContent = value;
      list.append(term, cell);
    }
    section.append(list);
  }
}

function showProgress({ mine, all, goal, undo }) {
  state.undo = undo;
  const whole = goal === null ? `${all}` : `${all} of ${goal}`;
  byId("counts").textContent = `You: ${mine} · All: ${whole}`;
  byId("bar").hidden = goal === null;
  byId("bar").max = goal || 1;
  byId("bar").value = Math.min(all, goal || 0);
  byId("undo").setAttribute("aria-disabled", String(undo === null));
}

function show({ pair, progress }) {
  state.pair = pair;
  showProgress(progress);
  byId("pair").hidden = pair === null;
  byId("nothing").hidden = pair !== null;
  for (const id of ["same", "different", "unsure"]) byId(id).setAttribute("aria-disabled", String(pair === null));
  if (pair === null) {
    byId("nothing").textContent = "There is no pair for you now: all are answered, or others have the last ones.";
    return;
  }
  showItem(byId("left"), pair.left);
  showItem(byId("right"), pair.right);
}

// One request at a time: what is pressed meanwhile is not about the pair that will be shown next.
async function alone(work) {
  if (state.busy) return;
  state.busy = true;
  document.body.classList.add("busy");
  try {
    await work();
  } finally {
    state.busy = false;
    document.body.classList.remove("busy");
  }
}

async function loadNext() {
  const found = await send("api/next", {});
  if (found.ok) show(found);
  else say(found.error, true);
  return found.ok;
}

function answer(kind) {
  if (state.pair === null) return;
  alone(async () => {
    const found = await send("api/answer", { ticket: state.pair.ticket, answer: kind, key: madeUp() });
    if (found.ok) {
      show(found);
      const { all, goal } = found.progress;
      say(all === goal ? `Kept: ${kind}. The goal is reached; you may go on.` : `Kept: ${kind}.`);
    } else if (await loadNext()) {
      say(`${found.error} Here is another pair.`, true);
    }
  });
}

function undo() {
  if (state.undo === null) {
    say("There is nothing to undo.");
    return;
  }
  alone(async () => {
    const found = await send("api/undo", { key: state.undo });
    if (found.ok) {
      show(found);
      say("Undone. Here is the pair again.");
    } else {
      say(found.error, true);
    }
  });
}

function act(what) {
  if (what === "undo") undo();
  else answer(what);
}

function begin(name) {
  state.annotator = name;
  sessionStorage.setItem("annotator", name);
  byId("who").hidden = true;
  byId("buttons").hidden = false;
  byId("change").hidden = false;
  byId("me").textContent = `You are ${name}.`;
  say("");
  alone(async () => {
    if (!(await loadNext())) ask();
  });
}

function ask() {
  sessionStorage.removeItem("annotator");
  state.pair = null;
  for (const id of ["pair", "nothing", "buttons", "change"]) byId(id).hidden = true;
  byId("me").textContent = "";
  byId("counts").textContent = "";
  byId("bar").hidden = true;
  byId("who").hidden = false;
  byId("name").focus();
}

async function start() {
  // A token in the address has done its work: the cookie has it now.
  if (location.search) history.replaceState(null, "", location.pathname);
  state.client = sessionStorage.getItem("client") || madeUp();
  sessionStorage.setItem("client", state.client);

  for (const button of document.querySelectorAll("#buttons button")) {
    button.addEventListener("click", () => act(button.id));
  }
  byId("change").addEventListener("click", () => {
    if (!state.busy) ask();
  });
  byId("who").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = byId("name").value.trim();
    if (name) begin(name);
  });
  document.addEventListener("keydown", (event) => {
    const what = KEYS[event.key.toLowerCase()];
    const typing = event.target instanceof HTMLInputElement;
    if (!what || typing || event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
    if (!byId("buttons").hidden) act(what);
  });
  // Where others have the last pairs, one of them may come back.
  setInterval(() => {
    if (!byId("nothing").hidden) alone(loadNext);
  }, 5000);

  const session = await (await fetch("api/session")).json();
  const name = sessionStorage.getItem("annotator") || session.annotator;
  if (name) begin(name);
  else ask();
}

start();
