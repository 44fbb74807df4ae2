// Sets the theme that was chosen before, as soon as the page begins: nothing flashes.
"use strict";
try {
  const chosen = localStorage.getItem("equipoise-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* A page from a file may have no storage: the system's theme it is. */ }
