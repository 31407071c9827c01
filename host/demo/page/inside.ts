/** Behind "look inside": experiments, counters, packets. Fetched when it is opened first. */
import { millis } from '../latencies.js';
import { Cards, type CardActions } from './cards.js';
import { element } from './element.js';
import { Plot } from './plot.js';
import type { ActCard, Figures, Kills, StripRun } from './protocol.js';
import { Strip, type StripActions } from './strip.js';

const perSecond = (value: number, unit: string): string => `${value.toFixed(1)} ${unit}`;

export class Inside {
  readonly cards: Cards;
  readonly #strip: Strip;
  readonly #throughput = new Plot({
    title: 'Sent and received',
    text: ([value]) => perSecond(value!, 'MB/s'),
  });
  readonly #delay = new Plot({
    title: '64-byte READ, p50 and p99',
    text: ([p50, p99]) => `${millis(p50!)}, ${millis(p99!)}`,
  });
  readonly #reliable = new Plot({
    title: 'Reliable channel, same loss',
    text: ([p50, p99]) => `${millis(p50!)}, ${millis(p99!)}`,
  });
  readonly #inFlight = new Plot({ title: 'WRITEs in flight', text: ([value]) => `${value!}` });
  readonly #retransmits = new Plot({
    title: 'Packets sent again',
    text: ([value]) => perSecond(value!, '/s'),
  });

  constructor(cards: CardActions, strip: StripActions) {
    this.cards = new Cards(cards);
    this.#strip = new Strip(strip);
    const plots = [
      this.#throughput,
      this.#delay,
      this.#reliable,
      this.#inFlight,
      this.#retransmits,
    ];
    element('plots', HTMLElement).append(...plots.map((plot) => plot.element));
  }

  fill(acts: readonly ActCard[]): void {
    this.cards.fill(element('acts', HTMLElement), acts);
  }

  showFigures(figures: Figures): void {
    this.#throughput.add([figures.megabytes]);
    this.#delay.add([figures.delayP50, figures.delayP99]);
    this.#reliable.add([figures.reliableP50, figures.reliableP99]);
    this.#inFlight.add([figures.inFlight]);
    this.#retransmits.add([figures.retransmits]);
  }

  showStrip(runs: readonly StripRun[], kills: Kills): void {
    this.#strip.update(runs, kills);
  }

  explain(sentence: string, fields: string): void {
    this.#strip.explain(sentence, fields);
  }
}
