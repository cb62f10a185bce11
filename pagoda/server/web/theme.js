// Runs before the page is drawn, so that it never flashes in the other theme. Not a module: those run later.
"use strict";
(() => {
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem("pagoda-theme");
    } catch {
      return null;
    }
  };
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  if (stored() === "dark" || stored() === "light") root.dataset.theme = stored();

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => button.setAttribute("aria-label", isDark() ? "Use the light theme" : "Use the dark theme");
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try {
        localStorage.setItem("pagoda-theme", root.dataset.theme);
      } catch {
        /* then it lasts as long as the page */
      }
      show();
      document.dispatchEvent(new Event("themechange"));
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      show();
      document.dispatchEvent(new Event("themechange"));
    });
    show();
  });
})();
