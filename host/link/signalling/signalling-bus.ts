/** How several processes of a signalling server pass messages to each other. */

/** Publish and subscribe: Redis (`redisBus`), or any other system that has both. */
export interface SignallingBus {
  /** Passes `message` to all subscribers of `channel`, in all processes; loss is permitted. */
  publish(channel: string, message: string): void;
  /**
   * Calls `listener` with each message of `channel`, also of this process, until the returned
   * function is called. Resolves when the subscription is in effect.
   */
  subscribe(channel: string, listener: (message: string) => void): Promise<() => void>;
  /** Ends the connections of the bus. */
  close(): Promise<void>;
}
