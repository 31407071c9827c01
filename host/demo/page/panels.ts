/** The three acts, of which one shows: `#paint`, `#race`, `#plug`; `#inside` opens the rest. */
import { element } from './element.js';

export const PANELS = ['paint', 'race', 'plug'] as const;
export type Panel = (typeof PANELS)[number];

/** Shows the act that the address names, now and when it changes. */
export function followAddress(): void {
  const show = (): void => {
    const name = location.hash.slice(1);
    if (name === 'inside') element('inside', HTMLDetailsElement).open = true;
    const shown = PANELS.find((panel) => panel === name) ?? 'paint';
    for (const panel of PANELS) {
      element(`act-${panel}`, HTMLElement).hidden = panel !== shown;
      const link = element(`to-${panel}`, HTMLAnchorElement);
      if (panel === shown) {
        link.setAttribute('aria-current', 'page');
        document.title = `${link.textContent} – Verbena`;
      } else link.removeAttribute('aria-current');
    }
    // A new tab begins where this one is.
    element('another', HTMLAnchorElement).href = location.href;
  };
  addEventListener('hashchange', show);
  show();
}
