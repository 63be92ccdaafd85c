"use strict";
// Laying out ten thousand rows again and again while they arrive takes longer than all else.
document.documentElement.classList.add("js");
addEventListener("error", () => document.documentElement.classList.add("ready"));
