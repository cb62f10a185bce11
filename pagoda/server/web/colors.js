// Colours for canvases: those of the style sheet, and one for each request.

const probe = document.createElement("span");
probe.hidden = true;
document.documentElement.append(probe);
let cache = new Map();
document.addEventListener("themechange", () => {
  cache = new Map();
});

/** What a variable of the style sheet is in the theme that shows now. */
export function color(name) {
  if (!cache.has(name)) {
    probe.style.color = `var(--${name})`;
    cache.set(name, getComputedStyle(probe).color);
  }
  return cache.get(name);
}

/** The same request has the same colour wherever it shows; neighbours in number lie far apart on the wheel. */
export function ownerColor(number) {
  const hue = (25 + number * 137.508) % 360;
  const scheme = getComputedStyle(probe).colorScheme;
  const isDark = scheme === "dark" || (scheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  const lightness = (isDark ? 0.7 : 0.62) + 0.09 * ((number % 3) - 1); // similar hues still differ
  return `oklch(${lightness.toFixed(2)} ${isDark ? 0.13 : 0.15} ${hue.toFixed(1)})`;
}
