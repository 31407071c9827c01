/**
 * A device over UDP of a client that goes on when this machine gets another address: a laptop in
 * another network. A socket stays at the address that it was bound to.
 */
import type { Context, CounterValues } from '../../index.js';
import { localAddressTowards } from '../../link/interface.js';
import { openLocalDevice, type DeviceOptions } from './open-device.js';

export interface RoamingOptions extends Omit<DeviceOptions, 'address'> {
  /** The address to stay at. Undefined: that from which the system sends to the server. */
  readonly address: string | undefined;
}

export class RoamingDevice {
  #context: Context;
  #address: string;
  /** Of devices that are closed. */
  #earlier: CounterValues | undefined;
  readonly #server: string;
  readonly #options: RoamingOptions;
  readonly #memoryBytes: number;

  private constructor(
    context: Context,
    address: string,
    server: string,
    options: RoamingOptions,
    memoryBytes: number,
  ) {
    this.#context = context;
    this.#address = address;
    this.#server = server;
    this.#options = options;
    this.#memoryBytes = memoryBytes;
  }

  /** `server`: a numeric address. Rejects as `openLocalDevice`, and where there is no route. */
  static async open(
    server: string,
    options: RoamingOptions,
    memoryBytes: number,
  ): Promise<RoamingDevice> {
    const address = options.address ?? (await localAddressTowards(server));
    const context = await openLocalDevice({ ...options, address }, { memoryBytes });
    return new RoamingDevice(context, address, server, options, memoryBytes);
  }

  get context(): Context {
    return this.#context;
  }

  /** Of all devices so far. */
  counters(): CounterValues {
    const now = this.#context.counters();
    const before = this.#earlier;
    if (!before) return now;
    const names = Object.keys(now) as (keyof CounterValues)[];
    return Object.fromEntries(
      names.map((name) => [name, now[name] + before[name]]),
    ) as CounterValues;
  }

  /**
   * Opens a device at this machine's address of now if that is another one; no connection may be
   * open. Resolves to the new address, and to undefined where nothing has changed: the address was
   * chosen, a capture has been begun, or there is no route at present.
   */
  async follow(): Promise<string | undefined> {
    if (this.#options.address !== undefined || this.#options.pcap !== undefined) return undefined;
    const address = await localAddressTowards(this.#server).catch(() => this.#address);
    if (address === this.#address) return undefined;
    const before = this.#context;
    const memoryBytes = this.#memoryBytes;
    const opened = await openLocalDevice({ ...this.#options, address }, { memoryBytes });
    this.#earlier = this.counters();
    this.#context = opened;
    this.#address = address;
    await before.close();
    return address;
  }

  close(): Promise<void> {
    return this.#context.close();
  }
}
