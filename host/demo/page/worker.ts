/** The page's Worker: the endpoint, the drawing of its memory, and reports to the page. */
import { timerMillis } from '../../base/timer.js';
import { mainActs } from '../acts/index.js';
import type { Act, MainAct, Outcome, Stage } from '../acts/act.js';
import { COLOURS, FLOWER_RADIUS, TouchedRows, paintFlower, paintLine } from '../brush.js';
import type { DemoEndpoint } from '../endpoint.js';
import type { Endpoint } from '../../link/endpoint.js';
import {
  explainFields,
  explainPacket,
  explainWcStatus,
  type PacketDescription,
} from '../../engine/explain.js';
import { fetchModule } from '../../engine/module-bytes.js';
import { PICTURE_BYTES, Word, readWord, writeWord } from '../memory-layout.js';
import type { Session } from '../session.js';
import { openEndpoint, type Opened } from './open-endpoint.js';
import { DataChannelLink } from '../../link/channel/data-channel.js';
import { Losses } from './losses.js';
import { Meter } from './meter.js';
import { PastedPeers } from './pasted-peers.js';
import { Screen } from './screen.js';
import { openSecond, serveSecond, type WorkerOwner } from './second-worker.js';
import type { TappedPacket } from '../wire-tap.js';
import type { FromWorker, StripRun, ToWorker } from './protocol.js';

const FIGURES_MILLIS = 250;
const STRIP_MILLIS = 150;
/** Most packets, and most runs, of a strip. */
const STRIP_PACKETS = 300;
const STRIP_RUNS = 15;
/** Between READs of the peer's memory, while it changes; and when it has not for a while. */
const REFRESH_MILLIS = 25;
const IDLE_REFRESH_MILLIS = 200;
const HIDDEN_REFRESH_MILLIS = 500;
/** The longest that a peer gets quiet. */
const QUIET_MILLIS_MAX = 15_000;
/** Each peer that a stroke is WRITTEN to costs a share of this tab's time. */
const PAINTED_MAX = 7;

/** Part of a Worker's global scope that is used; the page's types lack it. */
declare const self: {
  onmessage: ((event: MessageEvent<ToWorker>) => void) | null;
  readonly location: { readonly href: string };
  postMessage(message: FromWorker, transfer?: Transferable[]): void;
};

const say = (message: FromWorker): void => self.postMessage(message);
const note = (sentence: string, isTrouble = false): void =>
  say({ kind: 'note', sentence, isTrouble });

/** The page has ended the second Worker. */
let secondEnded: () => void = () => {};
const page: WorkerOwner = {
  begin: (port) => self.postMessage({ kind: 'second', port }, [port]),
  end: () => {
    say({ kind: 'secondOver' });
    return new Promise((resolve) => (secondEnded = resolve));
  },
};

class Demo {
  readonly #screen: Screen;
  readonly #origin: number;
  readonly #opened: Opened;
  readonly #meter: Meter;
  readonly #losses: Losses;
  #session: Session | undefined;
  readonly #pasted: PastedPeers;
  #firstWriteMillis = NaN;
  #colour = NaN;
  #isPlaying = false;
  /** The button of the act that plays is pressed again. */
  #press: () => void = () => {};
  #isInside = false;
  #isVisible = true;
  #isMeasuring = false;
  readonly #met = new WeakSet<Session>();
  /** When a peer was first seen to want quiet; NaN: none does. */
  #quietSince = NaN;
  #stripSeen = 0;
  /** READs the peer's memory now, if nothing has changed for a while. */
  #look: () => void = () => {};

  constructor(screen: Screen, origin: number, opened: Opened) {
    this.#screen = screen;
    this.#origin = origin;
    this.#opened = opened;
    this.#losses = new Losses(opened);
    this.#meter = new Meter(opened.endpoint, this.#losses.reliable);
    const { link } = opened.endpoint;
    this.#pasted = new PastedPeers(link instanceof DataChannelLink ? link : undefined, {
      send: (text) => say({ kind: 'pasteText', text }),
      say: (sentence) => say({ kind: 'pasteSaid', sentence }),
    });
    const { endpoint } = opened;
    // Before there is a peer: each one finds it when it READs what was painted before.
    const [x, y] = flowerPlaceOf(endpoint);
    paintFlower(endpoint.memory, new TouchedRows(), x, y, colourOf(endpoint.context.local));
    screen.ours = endpoint.memory;
    opened.endpoint.changed = () => this.#peersChanged();
    this.#peersChanged();
    setInterval(() => this.#tellFigures(), FIGURES_MILLIS);
    setInterval(() => this.#tellStrip(), STRIP_MILLIS);
  }

  hear(message: ToWorker): void {
    switch (message.kind) {
      case 'palette':
        this.#screen.setPalette(message.palette);
        return;
      case 'paint':
        this.#paint(message);
        this.#look();
        return;
      case 'clear':
        this.#opened.endpoint.memory.fill(0, 0, PICTURE_BYTES);
        for (const session of this.#painted()) session.clear();
        return;
      case 'press':
        this.#press();
        return;
      case 'inside':
        this.#isInside = message.isOpen;
        return;
      case 'invite':
        this.#pasted.invite();
        return;
      case 'paste':
        void this.#pasted.paste(message.text);
        return;
      case 'visible':
        this.#isVisible = message.isVisible;
        return;
      case 'select':
        this.#select(this.#find(message.peer));
        this.#peersChanged();
        return;
      case 'set':
        if (message.act === 'loss' && this.#session) {
          void this.#losses.set(this.#session, message.value);
        }
        return;
      case 'play':
        void this.#play(message.act, message.value);
        return;
      case 'kill':
        this.#opened.endpoint.tap.kill(message.packetKind, message.kill);
        this.#tellStrip(true);
        return;
      case 'packet':
        void this.#explainPacket(message.bytes);
        return;
      case 'inspect':
        this.#inspect();
        return;
      case 'secondEnded':
        secondEnded();
    }
  }

  /** Our strokes go to every tab, and to the peer that the page shows. */
  #painted(): Session[] {
    const { sessions } = this.#opened.endpoint;
    const isPainted = (session: Session): boolean =>
      session.kind === 'tab' || session === this.#session;
    return sessions.filter(isPainted).slice(-PAINTED_MAX);
  }

  #paint({ pane, line, colour }: Extract<ToWorker, { kind: 'paint' }>): void {
    if (pane === 'theirs') {
      this.#session?.paintTheirs(line, colour);
      return;
    }
    const sessions = this.#painted();
    for (const session of sessions) session.paintOurs(line, colour);
    if (sessions.length > 0) return;
    paintLine(this.#opened.endpoint.memory, new TouchedRows(), line, colour);
  }

  #find(address: string): Session | undefined {
    return this.#opened.endpoint.sessions.find(({ peer }) => `${peer.gid}` === address);
  }

  /** A tab is better company than the server; the newest is the one that is looked at. */
  #peersChanged(): void {
    const { endpoint, linkName } = this.#opened;
    const { sessions } = endpoint;
    for (const session of sessions) if (!this.#met.has(session)) this.#meet(session);
    const current = this.#session;
    if (!current || !sessions.includes(current)) {
      this.#select(sessions.findLast(({ kind }) => kind === 'tab') ?? sessions.at(-1));
    } else if (current.kind === 'node') {
      const tab = sessions.findLast(({ kind }) => kind === 'tab');
      if (tab) this.#select(tab);
    }
    const peers = sessions.map(({ peer, kind }) => {
      const address = `${peer.gid}`;
      const tail = address.split(':').at(-1)!;
      const isTab = kind === 'tab';
      return { address, name: isTab ? `tab …${tail}` : 'the server', isTab };
    });
    const selected = this.#session ? `${this.#session.peer.gid}` : '';
    const { address } = endpoint;
    say({ kind: 'peers', address, link: linkName, peers, selected, colour: this.#colour });
  }

  #select(session: Session | undefined): void {
    if (session === this.#session) return;
    this.#session = session;
    this.#screen.theirs = session?.view.memory;
    if (session) this.#watch(session).catch(() => undefined);
  }

  #meet(session: Session): void {
    this.#met.add(session);
    this.#pasted.meet(`${session.peer.gid}`);
    if (Number.isNaN(this.#colour)) this.#colour = this.#freeColour();
    this.#greet(session).catch(() => undefined);
  }

  /** A colour that follows from our address, or the next one that no tab has by its address. */
  #freeColour(): number {
    const { context, sessions } = this.#opened.endpoint;
    const tabs = sessions.filter(({ kind }) => kind === 'tab').slice(1 - COLOURS);
    const taken = new Set(tabs.map(({ peer }) => colourOf(peer)));
    let colour = colourOf(context.local);
    while (taken.has(colour)) colour = (colour + 1) % COLOURS;
    return colour;
  }

  /** Takes over what a tab painted before. The first peer of all gets our flower by WRITE. */
  async #greet(session: Session): Promise<void> {
    const { endpoint } = this.#opened;
    if (session.kind === 'tab') {
      const wasBlank = isBlank(endpoint.memory);
      await session.refresh();
      const isWiped = !wasBlank && isBlank(endpoint.memory);
      // Both do this: where both have painted, the paint of the smaller address stays.
      if (!isWiped) session.adoptTheirs(`${session.peer.gid}` < endpoint.address);
    }
    if (!Number.isNaN(this.#firstWriteMillis)) return;
    session.copySquare(...flowerPlaceOf(endpoint), FLOWER_RADIUS);
    await session.painter.settled();
    if (!Number.isNaN(this.#firstWriteMillis)) return;
    this.#firstWriteMillis = performance.timeOrigin + performance.now() - this.#origin;
    say({ kind: 'firstWrite', millis: this.#firstWriteMillis });
  }

  async #watch(session: Session): Promise<void> {
    const screen = this.#screen;
    let pause = REFRESH_MILLIS;
    while (session === this.#session) {
      const { changes } = screen;
      if (!this.#isQuiet()) await session.refresh();
      const millis = this.#isVisible ? pause : HIDDEN_REFRESH_MILLIS;
      const isAsked = await new Promise<boolean>((resolve) => {
        const timer = setTimeout(() => resolve(false), timerMillis(millis));
        this.#look = () => {
          if (millis === REFRESH_MILLIS) return;
          clearTimeout(timer);
          resolve(true);
        };
      });
      const isStill = !isAsked && screen.changes === changes;
      pause = isStill ? Math.min(2 * pause, IDLE_REFRESH_MILLIS) : REFRESH_MILLIS;
    }
  }

  /** Is a peer measuring? A measurement longer than QUIET_MILLIS_MAX counts as ended. */
  #isQuiet(): boolean {
    const { memory } = this.#opened.endpoint;
    if (readWord(memory, Word.QUIET) === 0) this.#quietSince = NaN;
    else if (Number.isNaN(this.#quietSince)) this.#quietSince = performance.now();
    else if (performance.now() - this.#quietSince > QUIET_MILLIS_MAX)
      writeWord(memory, Word.QUIET, 0);
    return this.#isMeasuring || !Number.isNaN(this.#quietSince);
  }

  async #quietly<Value>(session: Session, work: () => Promise<Value>): Promise<Value> {
    const { endpoint } = this.#opened;
    await endpoint.writeWord(session, Word.QUIET, 1);
    this.#isMeasuring = true;
    try {
      return await work();
    } finally {
      this.#isMeasuring = false;
      await endpoint.writeWord(session, Word.QUIET, 0);
    }
  }

  async #play(id: string, value: number): Promise<void> {
    const isId = (other: MainAct): boolean => other.id === id;
    const act = mainActs.find(isId) ?? (await insideActs()).find(isId);
    if (!act) return;
    const over = ({ sentences, figures }: Outcome, isDone: boolean): void => {
      this.#isPlaying = false;
      say({ kind: 'played', act: id, sentences, figures, isDone });
    };
    const refuse = (sentence: string): void => over({ sentences: [sentence], figures: {} }, false);
    const session = this.#session;
    if (!session) {
      refuse('There is no peer yet: open this page in a second tab.');
      return;
    }
    if (id === 'race' && this.#pasted.has(`${session.peer.gid}`)) {
      refuse(
        'The race needs a tab of this browser, or the server: it opens further connections, ' +
          'which are not made by copy and paste.',
      );
      return;
    }
    if (this.#isPlaying) return;
    this.#isPlaying = true;
    const stage: Stage = {
      endpoint: this.#opened.endpoint,
      session,
      say: (sentence) => say({ kind: 'said', act: id, sentences: [sentence] }),
      show: (scene) => say({ kind: 'shown', act: id, scene }),
      pressed: new Promise((resolve) => (this.#press = resolve)),
      draw: (values, text) => say({ kind: 'drawn', act: id, values, text }),
      explainStatus: async (status) => {
        await fetchModule('explain');
        return explainWcStatus(status);
      },
      channel: (kind) => this.#opened.yardsticks.channel(session, kind),
      quietly: (work) => this.#quietly(session, work),
      secondContext: (domain) => openSecond(this.#opened, session, domain, page),
      lose: (percent, delayMillis) => this.#losses.set(session, percent, delayMillis),
    };
    try {
      over(await act.play(stage, value), true);
    } catch (error) {
      const isThere = this.#opened.endpoint.sessions.includes(session);
      const left = 'The other side has left; choose another and try again.';
      refuse(isThere ? (error as Error).message : left);
    }
  }

  async #explainPacket(bytes: Uint8Array): Promise<void> {
    await fetchModule('explain');
    const sentence = explainPacket(bytes);
    say({ kind: 'packet', sentence, fields: headersOf(explainFields(bytes)) });
  }

  #tellFigures(): void {
    const session = this.#session;
    say({ kind: 'figures', figures: this.#meter.read(session) });
  }

  #tellStrip(always = false): void {
    const { tap } = this.#opened.endpoint;
    if (!this.#isInside || (!always && tap.count === this.#stripSeen)) return;
    this.#stripSeen = tap.count;
    const runs = runsOf(tap.latest(STRIP_PACKETS)).slice(-STRIP_RUNS);
    say({ kind: 'strip', runs, kills: Object.fromEntries(tap.kills) });
  }

  #inspect(): void {
    const { endpoint } = this.#opened;
    const { tap } = endpoint;
    const { lost } = endpoint.faults.counters;
    const counters = Object.fromEntries(
      Object.entries(endpoint.context.counters()).map(([name, value]) => [name, Number(value)]),
    );
    say({
      kind: 'inspected',
      inspection: {
        address: endpoint.address,
        ours: endpoint.memory.slice(),
        theirs: this.#session?.view.memory.slice(),
        counters: { ...counters, lost, killed: tap.killed, packets: tap.count },
        firstWriteMillis: this.#firstWriteMillis,
        drawMillis: this.#screen.drawMillis,
        frames: this.#screen.frames,
        frameMillis: this.#screen.frameMillis,
      },
    });
  }
}

/** Of a peer's flower, and of its brush if no other tab has it. */
function colourOf({ gid }: Endpoint): number {
  return gid.bytes[13]! % COLOURS;
}

/** Column and row, from the address. */
function flowerPlaceOf({ context }: DemoEndpoint): readonly [number, number] {
  const { bytes } = context.local.gid;
  return [30 + (bytes[14]! % 196), 30 + (bytes[15]! % 196)];
}

function isBlank(memory: Uint8Array): boolean {
  return memory.subarray(0, PICTURE_BYTES).every((byte) => byte === 0);
}

/** A line for each header, and one for what belongs to none. */
function headersOf(packet: PacketDescription): string {
  const pairs = (fields: object): string =>
    Object.entries(fields)
      .filter(([, value]) => value === null || typeof value !== 'object')
      .map(([name, value]) => `${name} ${value}`)
      .join(', ');
  const headers = Object.entries(packet)
    .filter(([, value]) => typeof value === 'object')
    .map(([name, value]) => `${name.toUpperCase().padEnd(10)} ${pairs(value as object)}`);
  return [...headers, `${'PACKET'.padEnd(10)} ${pairs(packet)}`].join('\n');
}

function runsOf(packets: readonly TappedPacket[]): StripRun[] {
  const runs: StripRun[] = [];
  for (const { isSent, kind, psn, bytes, isKilled } of packets) {
    const last = runs.at(-1);
    const isSame = last?.kind === kind && last.isSent === isSent && last.isKilled === isKilled;
    const count = isSame ? runs.pop()!.count + 1 : 1;
    runs.push({ count, isSent, kind, psn, bytes, isKilled });
  }
  return runs;
}

/** Messages that arrive before the endpoint is open. */
const early: ToWorker[] = [];
let demo: Demo | undefined;
let areActsShown = false;

/** Fetched when the page is looked inside: most visits do without. */
async function insideActs(): Promise<readonly Act[]> {
  return (await import('../acts/inside.js')).insideActs;
}

async function tellActs(): Promise<void> {
  const cards = (await insideActs()).map(({ id, title, sentence, slider, plot }) => {
    return { id, title, sentence, ...(slider && { slider }), ...(plot && { plot }) };
  });
  say({ kind: 'acts', acts: cards });
}

async function start(message: Extract<ToWorker, { kind: 'start' }>): Promise<void> {
  const screen = new Screen(message.ours, message.theirs, message.palette);
  const opened = await openEndpoint(new URLSearchParams(message.search), message.isStatic, note);
  demo = new Demo(screen, message.origin, opened);
  for (const other of early.splice(0)) demo.hear(other);
}

self.onmessage = ({ data }) => {
  if (data.kind === 'second') serveSecond(data.port);
  else if (data.kind === 'inside' && !areActsShown) {
    areActsShown = true;
    void tellActs();
    self.onmessage!({ data } as MessageEvent<ToWorker>);
  } else if (data.kind === 'start') {
    start(data).catch((error: Error) => note(`Nothing works here: ${error.message}`, true));
  } else if (demo) demo.hear(data);
  else early.push(data);
};
