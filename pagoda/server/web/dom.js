// Small helpers over the DOM. Text only ever enters as text: nothing here takes markup.

export const byId = (id) => document.getElementById(id);

/** A new element. `attributes` are set as attributes, but for class, text and on: {event: listener}. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "text") made.textContent = value;
    else if (name === "on")
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Write a text only where it changed, so that selections and screen readers are left alone. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

let tip = null;

/** Show `content` near a point of the window, wholly inside of it. */
export function showTip(content, x, y) {
  if (!tip) {
    tip = element("div", { class: "tip", role: "tooltip", id: "tip" });
    document.body.append(tip);
  }
  tip.replaceChildren(...content);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, x + 14), innerWidth - width - 8);
  const fitsBelow = y + 18 + height < innerHeight - 8;
  const top = fitsBelow ? y + 18 : Math.max(8, y - height - 12);
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}

export function hideTip() {
  if (tip) tip.hidden = true;
}

/** What was answered, or an Error with the server's own words. A lost session leads to the form that asks for a key. */
export async function getJson(url) {
  const response = await fetch(url, { headers: { accept: "application/json" }, cache: "no-store" });
  if (response.status === 401) location.reload();
  const content = await response.json().catch(() => null);
  if (!response.ok) throw new Error(content?.error?.message ?? `the server answered ${response.status}`);
  return content;
}
