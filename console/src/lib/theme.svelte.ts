// Dark or light: the system's choice, unless the user made one.

const STORED = 'freehold.theme';
const system = matchMedia('(prefers-color-scheme: dark)');
let dark = $state(system.matches);

export const theme = {
  get dark() {
    return dark;
  },
};

function show(wanted: boolean) {
  dark = wanted;
  document.documentElement.dataset.theme = wanted ? 'dark' : 'light';
}

export function startTheme() {
  const stored = localStorage.getItem(STORED);
  show(stored ? stored === 'dark' : system.matches);
  system.addEventListener('change', () => localStorage.getItem(STORED) ?? show(system.matches));
}

export function toggleTheme() {
  show(!dark);
  localStorage.setItem(STORED, dark ? 'dark' : 'light');
}
