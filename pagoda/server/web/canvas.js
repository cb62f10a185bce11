// Canvases that stay sharp, follow their width, and can be looked over by mouse, touch and arrow keys.
import { hideTip, showTip } from "./dom.js";

/** Size a canvas to its box, in the pixels of the device; returns what is needed to draw in CSS pixels. */
export function prepare(canvas, height) {
  const width = Math.max(1, Math.floor(canvas.parentElement.clientWidth));
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/**
 * Let people ask what they see. `find(x, y)` gives the index of what lies there or null, `count()` how many there are,
 * `tell(index)` the nodes of a tooltip, `place(index)` its centre; `select(index or null)` may mark it.
 */
export function explore(canvas, { find, count, tell, place, select = () => {}, rowLength = () => 1 }) {
  let current = null;
  canvas.setAttribute("aria-describedby", "tip");
  const show = (index, x, y) => {
    if (index === null) return leave();
    if (index !== current) {
      current = index;
      select(index);
    }
    showTip(tell(index), x, y);
  };
  const leave = () => {
    current = null;
    select(null);
    hideTip();
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    show(find(event.clientX - box.left, event.clientY - box.top), event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("blur", leave);
  canvas.addEventListener("keydown", (event) => {
    const moves = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: -rowLength(),
      ArrowDown: rowLength(),
      Home: -Infinity,
      End: Infinity,
    };
    if (event.key === "Escape") return leave();
    if (!(event.key in moves) || !count()) return;
    event.preventDefault();
    const next = current === null ? (moves[event.key] < 0 ? count() - 1 : 0) : current + moves[event.key];
    const index = Math.min(count() - 1, Math.max(0, next));
    const box = canvas.getBoundingClientRect();
    const { x, y } = place(index);
    show(index, box.left + x, box.top + y);
  });
}
