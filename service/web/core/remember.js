// What this browser remembers (theme, recent queries); nothing of it leaves the browser.

/** @template T @param {string} name @param {T} otherwise @returns {T} */
export function remembered(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`visterm.${name}`) ?? "null") ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} name @param {unknown} value */
export function remember(name, value) {
  try {
    localStorage.setItem(`visterm.${name}`, JSON.stringify(value));
  } catch {
    // private windows may refuse: the setting then lasts as long as the page
  }
}

/** @param {{ theme?: string }} [options] */
function setLook({ theme = remembered("theme", "system") } = {}) {
  document.documentElement.dataset.theme = theme;
  remember("theme", theme);
}

/** @param {HTMLElement} button */
export function themeButton(button) {
  const order = ["system", "light", "dark"];
  const say = () => {
    const theme = remembered("theme", "system");
    button.setAttribute("aria-label", `Theme: ${theme}. Change`);
    button.title = `Theme: ${theme}`;
    button.dataset.theme = theme;
  };
  button.addEventListener("click", () => {
    setLook({ theme: order[(order.indexOf(remembered("theme", "system")) + 1) % 3] });
    say();
  });
  setLook();
  say();
}
