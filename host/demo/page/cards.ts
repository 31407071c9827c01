/** The experiments: a card each, as the Worker lists them. */
import { make, setDisabled } from './element.js';
import { Plot } from './plot.js';
import type { ActCard } from './protocol.js';

export interface CardActions {
  play(act: string, value: number): void;
  /** The slider moved. */
  set(act: string, value: number): void;
}

interface Card {
  readonly button: HTMLButtonElement;
  readonly said: HTMLOutputElement;
  readonly plot: Plot | undefined;
}

export class Cards {
  readonly #actions: CardActions;
  readonly #cards = new Map<string, Card>();

  constructor(actions: CardActions) {
    this.#actions = actions;
  }

  /** Puts a card for each into `place`. */
  fill(place: HTMLElement, acts: readonly ActCard[]): void {
    place.replaceChildren(...acts.map((act) => this.#make(act)));
  }

  say(act: string, sentences: readonly string[]): void {
    const card = this.#cards.get(act);
    if (card) card.said.textContent = sentences.join('\n');
  }

  draw(act: string, values: readonly number[], text: string): void {
    const plot = this.#cards.get(act)?.plot;
    if (!plot) return;
    plot.element.hidden = false;
    plot.add(values, text);
  }

  /** Shows the result; the figures are attributes of the element. */
  end(act: string, sentences: readonly string[], figures: Readonly<Record<string, number>>): void {
    this.say(act, sentences);
    this.#cards.get(act)!.said.dataset['figures'] = JSON.stringify(figures);
  }

  /** While an act plays, no other one begins. */
  setBusy(isBusy: boolean): void {
    for (const { button } of this.#cards.values()) setDisabled(button, isBusy);
  }

  #make({ id, title, sentence, slider, plot: plotTitle }: ActCard): HTMLElement {
    const said = make('output', { className: 'said' });
    const button = make('button', { type: 'button', id: `act-${id}` }, title);
    button.setAttribute('aria-describedby', `about-${id}`);
    const about = make('p', { id: `about-${id}` }, sentence);
    const article = make('article', { className: 'act' }, button, about);
    let chosen = (): number => 0;
    if (slider) {
      const { min, max, step, unit } = slider;
      const input = make('input', { type: 'range', id: `slider-${id}` });
      // Nothing until it is pressed, where that is a value at all.
      const value = `${min > 0 ? slider.value : 0}`;
      // In this order: a value is cut to the range that there is.
      Object.assign(input, { min: `${min}`, max: `${max}`, step: `${step}`, value });
      const shown = make('output', {}, `${value} ${unit}`);
      chosen = () => Number(input.value);
      input.addEventListener('input', () => {
        shown.textContent = `${input.value} ${unit}`;
        this.#actions.set(id, chosen());
      });
      article.append(make('label', {}, slider.label, input, shown));
      button.addEventListener('click', () => {
        if (chosen() > 0) return;
        input.value = `${slider.value}`;
        shown.textContent = `${input.value} ${unit}`;
      });
    }
    button.addEventListener('click', () => {
      delete said.dataset['figures'];
      this.#actions.play(id, chosen());
    });
    const plot = plotTitle === undefined ? undefined : new Plot({ title: plotTitle });
    if (plot) {
      plot.element.hidden = true;
      article.append(plot.element);
    }
    article.append(said);
    this.#cards.set(id, { button, said, plot });
    return article;
  }
}
