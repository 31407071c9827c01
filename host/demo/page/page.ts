/** The page: starts the Worker, passes on what is painted, shows what the Worker says. */
import { provideRtc } from '../../link/rtc/provide.js';
import { millis } from '../latencies.js';
import { element, make, show } from './element.js';
import { MainActs } from './main-acts.js';
import { palette } from './palette.js';
import { PaneInput } from './pane.js';
import { followAddress } from './panels.js';
import { Paste } from './paste.js';
import type { Cards } from './cards.js';
import type { Inside } from './inside.js';
import type { Inspection } from './inspection.js';
import type { Figures, FromWorker, Pane, ToWorker } from './protocol.js';

const dark = matchMedia('(prefers-color-scheme: dark)');

class Page {
  readonly #worker = this.#startWorker().worker;
  /** Ends the second Worker. */
  #endSecond: () => void = () => {};
  readonly #mainActs = new MainActs({
    play: (act, value) => this.#play(act, value),
    press: (act) => this.#say({ kind: 'press', act }),
  });
  readonly #paste = new Paste({
    invite: () => this.#say({ kind: 'invite' }),
    paste: (text) => this.#say({ kind: 'paste', text }),
  });
  #inside: Inside | undefined;
  /** By a person, or by the first peer. */
  #isColourChosen = false;
  readonly #inspections: ((inspection: Inspection) => void)[] = [];

  constructor() {
    this.#worker.onmessage = ({ data }: MessageEvent<FromWorker>) => this.#hear(data);
    const ours = this.#pane('ours');
    const theirs = this.#pane('theirs');
    followAddress();
    this.#listen();
    this.#start(ours.canvas, theirs.canvas);
  }

  /** All of both memories, and the counters. */
  inspect(): Promise<Inspection> {
    this.#say({ kind: 'inspect' });
    return new Promise((resolve) => this.#inspections.push(resolve));
  }

  #start(ours: HTMLCanvasElement, theirs: HTMLCanvasElement): void {
    if (!('transferControlToOffscreen' in ours)) {
      this.#note('This browser lacks OffscreenCanvas: it is too old for this page.', true);
      return;
    }
    const canvases = [ours.transferControlToOffscreen(), theirs.transferControlToOffscreen()];
    const message: ToWorker = {
      kind: 'start',
      ours: canvases[0]!,
      theirs: canvases[1]!,
      palette: palette(dark.matches),
      origin: performance.timeOrigin,
      search: location.search,
      isStatic: 'static' in document.documentElement.dataset,
    };
    this.#worker.postMessage(message, canvases);
  }

  #startWorker(): { worker: Worker; end(): void } {
    const worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
    // Right after `new Worker`.
    const endRtc = provideRtc(worker);
    worker.onerror = (event) => this.#note(`The Worker failed: ${event.message}`, true);
    const end = (): void => {
      worker.terminate();
      endRtc();
    };
    return { worker, end };
  }

  /** Another one, with a context of the same device. */
  #startSecond(port: MessagePort): void {
    const { worker, end } = this.#startWorker();
    this.#endSecond = end;
    worker.postMessage({ kind: 'second', port } satisfies ToWorker, [port]);
  }

  #pane(pane: Pane): PaneInput {
    return new PaneInput(
      element(pane, HTMLElement),
      (line) => this.#say({ kind: 'paint', pane, line, colour: this.#colour() }),
      (sentence) => show('spoken', sentence),
    );
  }

  /** The first look fetches what is inside. */
  async #look(isOpen: boolean): Promise<void> {
    if (isOpen && !this.#inside) {
      const { Inside: Class } = await import('./inside.js');
      this.#inside ??= new Class(
        {
          play: (act, value) => this.#play(act, value),
          set: (act, value) => this.#say({ kind: 'set', act, value }),
        },
        {
          choose: (bytes) => this.#say({ kind: 'packet', bytes }),
          kill: (packetKind, kill) => this.#say({ kind: 'kill', packetKind, kill }),
        },
      );
    }
    this.#say({ kind: 'inside', isOpen });
  }

  #colour(): number {
    const chosen = document.querySelector<HTMLInputElement>('input[name="colour"]:checked');
    return Number(chosen?.value ?? 0);
  }

  #play(act: string, value: number): void {
    this.#setPlaying(act);
    this.#say({ kind: 'play', act, value });
  }

  /** One act at a time; '': none plays. */
  #setPlaying(act: string): void {
    this.#mainActs.setPlaying(act);
    this.#inside?.cards.setBusy(act !== '');
  }

  #listen(): void {
    dark.addEventListener('change', ({ matches }) =>
      this.#say({ kind: 'palette', palette: palette(matches) }),
    );
    document.addEventListener('visibilitychange', () =>
      this.#say({ kind: 'visible', isVisible: !document.hidden }),
    );
    element('clear', HTMLButtonElement).addEventListener('click', () =>
      this.#say({ kind: 'clear' }),
    );
    const inside = element('inside', HTMLDetailsElement);
    inside.addEventListener('toggle', () => void this.#look(inside.open));
    if (inside.open) void this.#look(true);
    for (const radio of document.querySelectorAll('input[name="colour"]')) {
      radio.addEventListener('change', () => (this.#isColourChosen = true));
    }
    const peer = element('peer', HTMLSelectElement);
    peer.addEventListener('change', () => this.#say({ kind: 'select', peer: peer.value }));
  }

  #say(message: ToWorker): void {
    this.#worker.postMessage(message);
  }

  #hear(message: FromWorker): void {
    switch (message.kind) {
      case 'acts':
        this.#inside?.fill(message.acts);
        return;
      case 'note':
        this.#note(message.sentence, message.isTrouble);
        return;
      case 'peers':
        this.#showPeers(message);
        return;
      case 'firstWrite':
        element('status', HTMLElement).title =
          `The first WRITE was acknowledged ${Math.round(message.millis)} ms after the load began.`;
        return;
      case 'figures':
        this.#showFigures(message.figures);
        return;
      case 'strip':
        this.#inside?.showStrip(message.runs, message.kills);
        return;
      case 'said':
        this.#acts(message.act)?.say(message.act, message.sentences);
        return;
      case 'shown':
        this.#mainActs.draw(message.scene);
        return;
      case 'pasteText':
        this.#paste.show(message.text);
        return;
      case 'pasteSaid':
        this.#paste.say(message.sentence);
        return;
      case 'drawn':
        this.#inside?.cards.draw(message.act, message.values, message.text);
        return;
      case 'played':
        this.#acts(message.act)?.end(message.act, message.sentences, message.figures);
        this.#setPlaying('');
        return;
      case 'packet':
        this.#inside?.explain(message.sentence, message.fields);
        return;
      case 'inspected':
        this.#inspections.shift()?.(message.inspection);
        return;
      case 'second':
        this.#startSecond(message.port);
        return;
      case 'secondOver':
        this.#endSecond();
        this.#say({ kind: 'secondEnded' });
    }
  }

  #acts(act: string): Cards | MainActs | undefined {
    return act === 'race' || act === 'plug' ? this.#mainActs : this.#inside?.cards;
  }

  #showPeers({ link, peers, selected, colour }: Extract<FromWorker, { kind: 'peers' }>): void {
    show('link', link);
    const select = element('peer', HTMLSelectElement);
    const options = peers.map(({ address, name }) => new Option(name, address));
    select.replaceChildren(...(options.length > 0 ? options : [new Option('no peer yet', '')]));
    select.disabled = peers.length === 0;
    select.value = selected;
    element('no-peer', HTMLElement).hidden = peers.length > 0;
    const tabs = peers.filter(({ isTab }) => isTab).length;
    if (tabs > 0)
      this.#status(`Connected to ${tabs === 1 ? '1 other tab' : `${tabs} other tabs`}.`);
    else if (peers.length > 0) this.#status('Connected to the server; no other tab yet.');
    else this.#status('No peer is connected yet.', false);
    show('latency-of', tabs > 0 || peers.length === 0 ? 'another tab' : 'the server');
    const shown = peers.find(({ address }) => address === selected);
    element('of-server', HTMLElement).hidden = shown?.isTab ?? true;
    const isFirst = peers.length > 0 && !this.#isColourChosen;
    const radio = document.querySelector<HTMLInputElement>(
      `input[name="colour"][value="${colour}"]`,
    );
    if (isFirst && radio) {
      radio.checked = true;
      this.#isColourChosen = true;
    }
  }

  #showFigures(figures: Figures): void {
    show('latency', millis(figures.delayP50));
    this.#inside?.showFigures(figures);
    const numbers = {
      arrived: figures.arrived,
      written: figures.written,
      'callbacks-here': figures.callbacksHere,
      callbacks: figures.callbacksThere,
      packets: figures.packets,
      killed: figures.killed,
    };
    for (const [id, value] of Object.entries(numbers)) show(id, value.toLocaleString('en'));
  }

  #status(sentence: string, isGood = true): void {
    show('status', sentence);
    element('status', HTMLElement).classList.toggle('good', isGood);
  }

  #note(sentence: string, isTrouble: boolean): void {
    const note = make('p', { className: isTrouble ? 'trouble' : '' }, sentence);
    element(isTrouble ? 'notes' : 'notes-inside', HTMLElement).append(note);
  }
}

const page = new Page();
/** For the console of the browser: `await demo.inspect()`. */
Object.assign(globalThis, { demo: { inspect: () => page.inspect() } });
