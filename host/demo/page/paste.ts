/** Copy and paste between two computers: the texts that a person carries. */
import { element, show } from './element.js';

export interface PasteActions {
  invite(): void;
  /** Text from the peer. */
  paste(text: string): void;
}

export class Paste {
  readonly #out = element('paste-out', HTMLTextAreaElement);
  readonly #in = element('paste-in', HTMLTextAreaElement);
  readonly #copy = element('paste-copy', HTMLButtonElement);

  constructor(actions: PasteActions) {
    element('paste-offer', HTMLButtonElement).addEventListener('click', () => actions.invite());
    this.#in.addEventListener('input', () => {
      const text = this.#in.value.trim();
      if (text === '') {
        this.say('');
        return;
      }
      this.#in.value = '';
      actions.paste(text);
    });
    this.#copy.addEventListener('click', () => void this.#copyOut());
  }

  /** A text for the other side. */
  show(text: string): void {
    this.#out.value = text;
    this.#copy.disabled = false;
  }

  say(sentence: string): void {
    show('paste-said', sentence);
  }

  async #copyOut(): Promise<void> {
    this.#out.select();
    try {
      await navigator.clipboard.writeText(this.#out.value);
      this.say('Copied.');
    } catch {
      // Without permission, or not by HTTPS: the text is selected.
      this.say('Copy the selected text.');
    }
  }
}
