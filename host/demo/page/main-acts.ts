/** The race and the plug: their buttons, and what is drawn while they play. */
import type { Scene } from '../acts/act.js';
import { millis } from '../latencies.js';
import { element, setDisabled, show } from './element.js';

export interface MainActions {
  play(act: string, value: number): void;
  /** The button of the act that plays is pressed again. */
  press(act: string): void;
}

const LANES = ['ours', 'reliable'] as const;
type Lane = (typeof LANES)[number];
/** Milliseconds that the track is long at first; a longer run makes it longer for both. */
const TRACK_MILLIS = 400;

export class MainActs {
  readonly #actions: MainActions;
  readonly #race = element('go-race', HTMLButtonElement);
  readonly #plug = element('go-plug', HTMLButtonElement);
  /** Which act plays; of another act nothing begins. */
  #playing = '';
  #trackMillis = TRACK_MILLIS;
  #startMillis = NaN;
  /** Of the race, at `#startMillis`. */
  #leftMillis = 0;
  readonly #took: Record<Lane, number> = { ours: NaN, reliable: NaN };

  constructor(actions: MainActions) {
    this.#actions = actions;
    this.#race.addEventListener('click', () => this.#startRace());
    this.#plug.addEventListener('click', () => this.#pressPlug());
  }

  say(act: string, sentences: readonly string[]): void {
    show(`said-${act}`, sentences.join('\n'));
  }

  draw(scene: Scene): void {
    switch (scene.kind) {
      case 'start':
        this.#startMillis = performance.now();
        this.#leftMillis = scene.leftMillis;
        for (const lane of LANES) this.#took[lane] = NaN;
        this.#animate();
        return;
      case 'arrival':
        this.#took[scene.lane] = scene.millis;
        this.#label(scene.lane, scene.millis, scene.median);
        return;
      case 'records':
        show('plug-count', scene.acknowledged.toLocaleString('en'));
        return;
      case 'killed':
        this.#lamp('off');
    }
  }

  /** Shows the result; the figures are an attribute of the element. */
  end(act: string, sentences: readonly string[], figures: Readonly<Record<string, number>>): void {
    this.say(act, sentences);
    element(`said-${act}`, HTMLElement).dataset['figures'] = JSON.stringify(figures);
    if (act === 'plug') {
      // Of the last records no message was shown.
      const { acknowledged } = figures;
      if (acknowledged !== undefined) show('plug-count', acknowledged.toLocaleString('en'));
      this.#lamp('off');
      show('go-plug', 'Start writing');
      this.#plug.classList.remove('danger');
    } else {
      show('go-race', 'Race again');
    }
  }

  /** While an act plays, no other one begins: `act` is its id, '' when it is over. */
  setPlaying(act: string): void {
    this.#playing = act;
    setDisabled(this.#race, act !== '');
    setDisabled(this.#plug, act !== '' && act !== 'plug');
  }

  #startRace(): void {
    const chosen = document.querySelector<HTMLInputElement>('input[name="race-loss"]:checked');
    this.#trackMillis = TRACK_MILLIS;
    this.#begin('race');
    this.say('race', ['Two connections are made …']);
    this.#actions.play('race', Number(chosen?.value ?? 1));
  }

  #pressPlug(): void {
    if (this.#playing === 'plug') {
      setDisabled(this.#plug, true);
      this.#actions.press('plug');
      return;
    }
    this.#begin('plug');
    show('plug-count', '0');
    show('go-plug', 'Pull the plug!');
    this.#plug.classList.add('danger');
    this.#lamp('on');
    this.say('plug', ['Records arrive. Pull the plug at any moment.']);
    this.#actions.play('plug', 0);
  }

  /** Its result is there when the figures are. */
  #begin(act: string): void {
    delete element(`said-${act}`, HTMLElement).dataset['figures'];
  }

  #lamp(state: 'on' | 'off'): void {
    show('plug-lamp', state);
    element('plug-lamp', HTMLElement).classList.toggle('on', state === 'on');
  }

  #label(lane: Lane, took: number, median: number): void {
    const output = document.querySelector(`#lane-${lane} output`)!;
    output.textContent = `${millis(took)}, median ${millis(median)}`;
  }

  /** Both bars grow in real time, each until its frame has arrived. */
  #animate(): void {
    const elapsed = performance.now() - this.#startMillis;
    const left = Math.ceil((this.#leftMillis - elapsed) / 1000);
    // A frame of the screen may come after the end.
    if (this.#playing === 'race') show('go-race', `Racing: ${Math.max(left, 0)} s`);
    let isRunning = false;
    for (const lane of LANES) {
      const took = this.#took[lane];
      const length = Number.isNaN(took) ? elapsed : took;
      isRunning ||= Number.isNaN(took);
      if (Number.isFinite(length)) this.#trackMillis = Math.max(this.#trackMillis, length);
    }
    for (const lane of LANES) {
      const took = this.#took[lane];
      const length = Math.min(Number.isNaN(took) ? elapsed : took, this.#trackMillis);
      const run = document.querySelector<HTMLElement>(`#lane-${lane} .run`)!;
      run.style.transform = `scaleX(${length / this.#trackMillis})`;
      run.classList.toggle('arrived', !Number.isNaN(took));
    }
    if (isRunning && this.#playing === 'race') requestAnimationFrame(() => this.#animate());
  }
}
