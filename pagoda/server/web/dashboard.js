// Asks for the state of the server once a second, as long as somebody looks, and hands its parts to those who draw.
import { byId, element, getJson, setText } from "./dom.js";
import { NOTHING, bytes, duration, number, percent, rate, shortId } from "./format.js";
import { PageMap } from "./page-map.js";
import { Plot } from "./plot.js";
import { RequestTable } from "./requests.js";
import { StepStrip } from "./steps.js";

const POLL_MILLISECONDS = 1000;
const MOST_DECISIONS = 8;
const whole = (value) => rate(Math.round(value * 10) / 10);

const makePlot = (id, least, ...series) => new Plot(byId(id), { series, format: whole, height: 190, least });
const plots = {
  drawn: makePlot("drawn-plot", 10, { name: "tokens a second", color: "accent", area: true }),
  requests: makePlot("requests-plot", 4, { name: "running", color: "accent" }, { name: "waiting", color: "second" }),
  prompt: makePlot("prompt-plot", 10, { name: "prompt tokens a second", color: "second", area: true }),
};
const strip = new StepStrip(byId("steps"));
const maps = [];
const table = new RequestTable(byId("requests"), (number) => maps.forEach((map) => map.mark(number)));

const STATES = {
  ready: ["good", "ready"],
  loading: ["warn", "loading"],
  draining: ["warn", "finishing"],
  down: ["bad", "no engine"],
};

function showEngine(state) {
  const { engine } = state;
  const [kind, word] = STATES[engine.status];
  const loaded =
    engine.status === "loading" && engine.num_to_load ? ` ${percent(engine.num_loaded / engine.num_to_load)}` : "";
  const pill = byId("status");
  pill.className = `pill ${kind}`;
  setText(pill, word + loaded);
  setText(byId("model"), state.model);
  byId("model").title = state.model;
  const parts = [`Pagoda ${state.version}`];
  if (engine.page_size) {
    parts.push(
      `context ${number(engine.max_model_len)} tokens`,
      `${number(engine.max_num_seqs)} rows`,
      `pages of ${engine.page_size} tokens`,
    );
    parts.push(`weights ${bytes(engine.weight_bytes)}`, `KV cache ${bytes(engine.cache_bytes)}`);
  }
  if (engine.num_deaths) parts.push(`the engine was lost ${engine.num_deaths} times`);
  setText(byId("footer"), parts.join(" · "));
}

function showTiles({ now, engine }) {
  setText(byId("tokens"), rate(now.new_tokens_per_second));
  setText(byId("prompt-tokens"), `and ${rate(now.prompt_tokens_per_second)} prompt tokens a second`);
  setText(byId("running"), number(now.num_running));
  const rows = engine.max_num_seqs;
  setText(byId("rows"), rows ? `of ${number(rows)} rows` : "");
  byId("rows-bar").firstElementChild.style.width = rows ? `${(100 * now.num_running) / rows}%` : "0";
  setText(byId("waiting"), number(now.num_waiting));
  const notes = [];
  if (now.num_refused) notes.push(`${number(now.num_refused)} refused`);
  if (now.num_preemptions) notes.push(`${number(now.num_preemptions)} pushed back`);
  if (now.num_paused) notes.push(`${number(now.num_paused)} paused`);
  setText(byId("queue"), notes.join(", ") || "nobody refused or pushed back");
  setText(byId("kv"), percent(now.kv_used));
  const [held, idle] = byId("kv-bar").children;
  held.style.width = `${100 * now.kv_used}%`;
  idle.style.width = `${100 * now.kv_idle}%`;
  setText(byId("kv-note"), `${percent(now.kv_idle)} kept for later`);
  const recent = now.hit_rate.last_minute;
  setText(byId("hits"), percent(recent ?? now.hit_rate.since_start));
  setText(byId("hits-note"), recent === null ? "of prompt tokens, since the start" : "of prompt tokens, last minute");
}

/** The last minute; where nothing happened in it, all since the start. */
function showLatency(name, { last_minute: minute, since_start: all }) {
  const found = minute.count ? minute : all;
  const [value, unit] = duration(found.p50);
  byId(name).replaceChildren(value, element("small", { text: unit ? `${unit} p50` : "" }));
  const lines = ["p95", "p99"].map((share) => [share, duration(found[share]).join(" ")]);
  if (all.count && !minute.count) lines.push(["since the", "start"]);
  const cells = lines.flatMap(([term, text]) => [element("dt", { text: term }), element("dd", { text })]);
  byId(`${name}-shares`).replaceChildren(...cells);
}

function showMaps(state) {
  const requests = new Map(state.requests.map((request) => [request.number, request]));
  while (maps.length < state.pages.length) maps.push(new PageMap(byId("maps")));
  maps.forEach((map, i) => {
    const group = state.pages[i];
    map.box.hidden = !group;
    const kind = group?.kind === "full" ? "Layers that see all tokens" : "Layers that see a window of tokens";
    if (group) map.show(group, requests, state.pages.length > 1 ? kind : "");
  });
  const thinned = state.pages.find((group) => group.stride > 1);
  const note = thinned ? `Each square stands for one of ${thinned.stride} pages.` : "";
  setText(byId("maps-note"), state.pages.length ? note : "There is no engine whose pages could be shown.");
}

function showSteps(state) {
  strip.show(state.steps);
  const last = state.steps.at(-1);
  const when = last && last.seconds_ago > 3 ? `${duration(last.seconds_ago).join(" ")} ago` : "just now";
  setText(byId("steps-note"), last ? `step ${number(last.step)}, ${when}` : "no step yet");
  const decisions = state.steps.flatMap((step) => step.decisions.map((decision) => ({ ...decision, step: step.step })));
  const shown = decisions.slice(-MOST_DECISIONS).reverse();
  byId("decisions").replaceChildren(
    ...shown.map((decision) =>
      element(
        "li",
        {},
        element("span", { class: "step", text: `step ${decision.step}` }),
        element("span", { class: "who mono", text: shortId(decision.request), title: decision.request }),
        element("span", { class: "what", text: decision.text, title: decision.text }),
      ),
    ),
  );
}

function showRequests(state) {
  table.show(state.requests);
  const hasAny = state.requests.length > 0;
  byId("no-requests").hidden = hasAny;
  document.querySelector(".requests").hidden = !hasAny;
  const more = state.num_waiting_left_out ? `; ${number(state.num_waiting_left_out)} more wait` : "";
  setText(byId("requests-note"), hasAny ? `click one to see what was decided about it${more}` : "");
}

function show(state) {
  showEngine(state);
  showTiles(state);
  showLatency("first-token", state.latency.first_token);
  showLatency("between", state.latency.between_tokens);
  const { history } = state;
  plots.drawn.show(history.seconds_ago, history.new_tokens);
  plots.requests.show(history.seconds_ago, history.num_running, history.num_waiting);
  plots.prompt.show(history.seconds_ago, history.prompt_tokens);
  showMaps(state);
  showSteps(state);
  showRequests(state);
  document.title = `${state.now.num_running + state.now.num_waiting || NOTHING} under way · Pagoda`;
}

async function poll() {
  let problem = "";
  const state = await getJson("/debug/state").catch((error) => {
    problem = error instanceof TypeError ? "The server does not answer; trying again." : error.message;
    return null;
  });
  byId("banner").hidden = !problem;
  setText(byId("banner"), problem);
  if (state) return show(state);
  byId("status").className = "pill bad";
  setText(byId("status"), "not reached");
}

async function run() {
  while (true) {
    if (!document.hidden) await poll();
    await new Promise((resume) => setTimeout(resume, POLL_MILLISECONDS));
  }
}

run();
