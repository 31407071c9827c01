/** The newest packets of the wire, and the one that was chosen. */
import type { Kill } from '../wire-tap.js';
import { element, make, show } from './element.js';
import type { Kills, StripRun } from './protocol.js';

export interface StripActions {
  /** Asks what a packet says. */
  choose(bytes: Uint8Array): void;
  kill(packetKind: string, kill: Kill): void;
}

const KILLS: Readonly<Record<string, Kill>> = {
  'kill-next': 'next',
  'kill-all': 'all',
  'kill-none': 'none',
};

export class Strip {
  readonly #actions: StripActions;
  readonly #strip = element('strip', HTMLOListElement);
  readonly #hold = element('hold', HTMLButtonElement);
  #isHeld = false;
  #chosenKind = '';

  constructor(actions: StripActions) {
    this.#actions = actions;
    this.#hold.addEventListener('click', () => this.#setHeld(!this.#isHeld));
    for (const [id, kill] of Object.entries(KILLS)) {
      element(id, HTMLButtonElement).addEventListener('click', () => {
        actions.kill(this.#chosenKind, kill);
        this.#setHeld(false);
      });
    }
  }

  update(runs: readonly StripRun[], kills: Kills): void {
    this.#showKills(kills);
    // The strip stands still under the pointer: a button must not change before its click.
    if (this.#isHeld || this.#strip.matches(':hover, :focus-within')) return;
    this.#strip.replaceChildren(...runs.map((run) => this.#item(run)));
  }

  /** Shows the description of the chosen packet. */
  explain(sentence: string, fields: string): void {
    show('sentence', sentence);
    show('fields', fields);
    show('kill-next', `Drop the next ${this.#chosenKind}`);
    show('kill-all', `Drop every ${this.#chosenKind}`);
    element('packet', HTMLElement).hidden = false;
  }

  #item({ count, isSent, kind, psn, bytes, isKilled }: StripRun): HTMLElement {
    const times = count > 1 ? `${count}×` : '';
    const title = `PSN ${psn}, ${bytes.length} bytes`;
    const button = make(
      'button',
      { type: 'button', title },
      make('span', {}, isSent ? '→ ' : '← ', kind),
      make('small', {}, times),
    );
    const direction = isSent ? 'sent' : 'received';
    button.setAttribute(
      'aria-label',
      `${direction}: ${times} ${kind}, ${bytes.length} bytes, PSN ${psn}${isKilled ? ', killed' : ''}`,
    );
    button.classList.toggle('received', !isSent);
    button.classList.toggle('nak', kind.endsWith('NAK'));
    button.classList.toggle('killed', isKilled);
    button.addEventListener('click', () => {
      this.#setHeld(true);
      this.#chosenKind = kind;
      this.#actions.choose(bytes);
    });
    return make('li', {}, button);
  }

  #showKills(kills: Kills): void {
    const place = element('kills', HTMLElement);
    const wanted = Object.entries(kills).map(([kind, kill]) => `${kind} ${kill}`);
    if (place.dataset['kills'] === wanted.join()) return;
    place.dataset['kills'] = wanted.join();
    const buttons = Object.entries(kills).map(([kind, kill]) => {
      const words = kill === 'all' ? `Every ${kind} is dropped` : `The next ${kind} is dropped`;
      const button = make('button', { type: 'button' }, `${words} ✕`);
      button.setAttribute('aria-label', `${words}; drop none`);
      button.addEventListener('click', () => this.#actions.kill(kind, 'none'));
      return button;
    });
    place.replaceChildren(...buttons);
  }

  #setHeld(isHeld: boolean): void {
    this.#isHeld = isHeld;
    this.#hold.setAttribute('aria-pressed', `${isHeld}`);
  }
}
