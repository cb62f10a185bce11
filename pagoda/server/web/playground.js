// A conversation with the model: asks, shows the answer as it grows, and can be stopped.
import { AnswerView } from "./answer.js";
import { chatChunks } from "./chat-stream.js";
import { byId, element, getJson, setText } from "./dom.js";
import { number, seconds } from "./format.js";
import { Parameters } from "./parameters.js";

const STARTERS = [
  "Why is the sky blue?",
  "Write a haiku about pages of memory.",
  "Explain what a KV cache is, in three points.",
];
const NEAR_END = 80;

const scroller = document.scrollingElement;
const messages = byId("messages");
const input = byId("message");
const parameters = new Parameters(byId("parameters"), () => messages.classList.toggle("tinted", parameters.isTinted));
messages.classList.toggle("tinted", parameters.isTinted);
byId("parameters-box").open = matchMedia("(min-width: 901px)").matches;

let conversation = []; // what was said, as the API wants it
let running = null; // the AbortController of the answer under way
let turn = 0; // clearing begins another; what still comes of the last one is not for it

function add(node) {
  byId("welcome").hidden = true;
  messages.append(node);
  scroller.scrollTop = scroller.scrollHeight;
}

/** Follow the answer, unless the reader has scrolled away from its end. */
function followEnd(change) {
  const isNear = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_END;
  change();
  if (isNear)
    requestAnimationFrame(() => {
      scroller.scrollTop = scroller.scrollHeight;
    });
}

function setRunning(controller) {
  running = controller;
  byId("send").hidden = running !== null;
  byId("stop").hidden = running === null;
}

function ask(text) {
  if (running || !text.trim() || !parameters.areValid) return;
  if (conversation.at(-1)?.role === "user") conversation.pop(); // it was never answered, and roles must take turns
  conversation.push({ role: "user", content: text });
  add(element("div", { class: "message user", text }));
  input.value = "";
  fitInput();
  answer();
}

async function answer() {
  const view = new AnswerView();
  const notes = element("div", { class: "notes" }, "waiting for the first token…");
  const box = element("div", { class: "message assistant", "aria-busy": "true" }, view.box, notes);
  view.draw();
  add(box);
  const times = { start: performance.now(), first: null, last: null, numFirst: 0 };
  const own = { turn, view, notes, box, times, usage: null, reason: "" };
  const controller = new AbortController();
  setRunning(controller);
  try {
    const request = { messages: [...parameters.system(), ...conversation], ...parameters.body() };
    for await (const { chunk, time } of chatChunks(request, controller.signal)) take(own, chunk, time);
  } catch (error) {
    if (controller.signal.aborted) own.reason = "stopped";
    else box.insertBefore(tellProblem(error), notes);
  }
  end(own);
}

function take(own, chunk, time) {
  if (chunk.usage) own.usage = chunk.usage;
  const choice = chunk.choices[0];
  if (!choice) return;
  if (choice.finish_reason) own.reason = choice.finish_reason;
  const text = choice.delta.content ?? "";
  const scores = choice.logprobs?.content ?? [];
  if (!text && !scores.length) return;
  const times = own.times;
  times.last = time;
  times.first ??= time;
  if (time === times.first) times.numFirst += scores.length || 1;
  followEnd(() => own.view.add(text, scores));
  setText(own.notes, `first token after ${seconds((times.first - times.start) / 1000)}`);
}

function end(own) {
  followEnd(() => own.view.finish());
  own.box.removeAttribute("aria-busy");
  const text = own.view.source.text;
  own.view.box.hidden = !text;
  own.notes.replaceChildren(...tellCost(own));
  if (own.turn !== turn) return;
  if (text) conversation.push({ role: "assistant", content: text });
  setRunning(null);
  const again = element("button", { type: "button", text: "try again", on: { click: () => retry(own, again) } });
  if (text) own.notes.append(copyButton(text));
  own.notes.append(again);
  input.focus({ preventScroll: true });
}

function tellCost({ usage, times, reason, view }) {
  const parts = [];
  const count = usage?.completion_tokens ?? view.source.tokens.length;
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens;
    parts.push(`${number(usage.prompt_tokens)} prompt tokens${cached ? ` (${number(cached)} cached)` : ""}`);
  }
  if (count) parts.push(`${number(count)} tokens`);
  const { start, first, last, numFirst } = times;
  if (first !== null) {
    parts.push(`first after ${seconds((first - start) / 1000)}`);
    // How fast tokens follow each other is known of those alone that came after the first.
    if (count > numFirst && last > first) {
      parts.push(`${number((count - numFirst) / ((last - first) / 1000), 1)} tokens a second`);
    }
  }
  const nodes = parts.map((text) => element("span", { text }));
  const ends = { length: "cut at the most tokens", stopped: "stopped" };
  if (ends[reason]) nodes.push(element("span", { class: "why-ended", text: ends[reason] }));
  return nodes;
}

function tellProblem(error) {
  const wait = error.retryAfter ? ` It asks to come back in ${error.retryAfter} s.` : "";
  let title = error instanceof TypeError ? "The server does not answer" : "The answer broke off";
  if (error.status) title = `The server refused (${[error.status, error.code].filter(Boolean).join(", ")})`;
  return element("div", { class: "problem", role: "alert" }, element("b", { text: title }), error.message + wait);
}

function copyButton(text) {
  const say = (word) => () => {
    button.textContent = word;
  };
  const copy = () => navigator.clipboard.writeText(text).then(say("copied"), say("not allowed"));
  const button = element("button", { type: "button", text: "copy", on: { click: copy } });
  return button;
}

/** The last answer once more; older ones lose the button with the next question. */
function retry(own, button) {
  if (running || messages.lastElementChild !== own.box) return button.remove();
  own.box.remove();
  if (conversation.at(-1)?.role === "assistant") conversation.pop();
  answer();
}

function clear() {
  turn += 1;
  running?.abort();
  setRunning(null);
  conversation = [];
  for (const message of messages.querySelectorAll(".message")) message.remove();
  byId("welcome").hidden = false;
  input.focus();
}

function fitInput() {
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight}px`;
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  ask(input.value);
});
byId("stop").addEventListener("click", () => running?.abort());
byId("clear").addEventListener("click", clear);
input.addEventListener("input", fitInput);
input.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    ask(input.value);
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
});
for (const text of STARTERS) {
  byId("starters").append(element("button", { class: "button", type: "button", text, on: { click: () => ask(text) } }));
}
function nameModel(name) {
  setText(byId("model"), name);
  byId("model").title = name;
}

getJson("/v1/models").then(
  ({ data: [model] }) => {
    nameModel(model.id);
    parameters.showDefaults(model.default_sampling_params);
  },
  (error) => nameModel(error.message),
);
input.focus();
