/** Where a capture goes. */
export interface PcapSink {
  /** Format of the file. Default: pcap. */
  readonly format?: 'pcap' | 'pcapng';
  /**
   * Takes the next bytes of the file, whole frames; they belong to the sink from then on. False:
   * it did not take them (it has too much to write already, or failed).
   */
  write(bytes: Uint8Array): boolean;
  /** Writes out everything. Rejects with the RefusalError that lost something. */
  close(): Promise<void>;
}

/** Counters of the packets of a capture. */
export interface PcapCounters {
  /** Packets handed to the sink, or about to be. */
  captured: number;
  /** Packets that the sink did not take, or that fit into no IP packet. */
  omitted: number;
}
