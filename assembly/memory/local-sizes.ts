/** Sizes of the local path's tables in an arena (local-channel.ts, local-endpoint.ts). */

/** Of a LocalMessage. */
export const LOCAL_MESSAGE_SIZE: u32 = 64;
/** Bytes of a message, or of its SGEs, that follow its entry at most. */
export const LOCAL_VALUE_SIZE: u32 = 128;
/** Of a message with what follows it. */
export const ENTRY_SIZE: u32 = LOCAL_MESSAGE_SIZE + LOCAL_VALUE_SIZE;

/** Two cache lines before the entries. */
export const CHANNEL_HEADER_SIZE: u32 = 128;
/** A bit for each of 256 sources, and a cache line. */
export const BITS_SIZE: u32 = 64;

/** Of one source; `messages`: entries, a power of two. */
export function channelBytes(messages: u32): u32 {
  return CHANNEL_HEADER_SIZE + messages * ENTRY_SIZE;
}

/** Of all sources of one target. */
export function targetBytes(contexts: u32, messages: u32): u32 {
  return BITS_SIZE + contexts * channelBytes(messages);
}

/** Bytes of the channels of all contexts; `messages`: entries of each, a power of two, or 0. */
export function localChannelsBytes(contexts: u32, messages: u32): u32 {
  return messages == 0 ? 0 : contexts * targetBytes(contexts, messages);
}

/** Of a LocalEndpoint. */
export const LOCAL_ENDPOINT_SIZE: u32 = 32;

/** Bytes of the tables of all contexts. */
export function localEndpointsBytes(contexts: u32, endpoints: u32): u32 {
  return contexts * endpoints * LOCAL_ENDPOINT_SIZE;
}
