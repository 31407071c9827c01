/**
 * From paths in the engine's memory to endpoints: the same address is the same object, since links
 * know a destination again by its identity, and thousands of queue pairs may have the same.
 */
import { PathLayout } from '#build/abi.js';
import type { EngineMemory } from '../engine/memory.js';
import { Endpoint, Gid } from '../link/endpoint.js';

const PATH = PathLayout.fields;
const GID = PATH.remoteGid0[0] >>> 2;
const PORT = PATH.remotePort[0] >>> 2;
/** Two halves of a word: of our own kind, and our port. */
const KIND_AND_SOURCE = PATH.ownKind[0] >>> 2;
/** Endpoints that are remembered; forgetting them costs a look-up each. */
const ENDPOINTS_KEPT = 65536;

export class Destinations {
  readonly #memory: EngineMemory;
  readonly #ownKind: (peer: Endpoint) => void;
  readonly #byPath = new Map<number, Endpoint>();
  readonly #byAddress = new Map<string, Endpoint>();

  /** `ownKind` is called with each endpoint of a Verbena peer. */
  constructor(memory: EngineMemory, ownKind: (peer: Endpoint) => void = () => {}) {
    this.#memory = memory;
    this.#ownKind = ownKind;
  }

  /** Where packets of the path at this address go, now: paths change. */
  of(path: number): Endpoint {
    const { words } = this.#memory;
    const at = path >>> 2;
    const known = this.#byPath.get(path);
    const sourcePort = words[at + KIND_AND_SOURCE]! >>> 16;
    if (
      known &&
      known.port === words[at + PORT] &&
      known.sourcePort === sourcePort &&
      sameGid(known.gid.words, words, at + GID)
    ) {
      return known;
    }
    const from = path + PATH.remoteGid0[0];
    const gid = new Gid(this.#memory.bytes.slice(from, from + 16));
    const endpoint = this.#intern(new Endpoint(gid, words[at + PORT]!, sourcePort));
    if ((words[at + KIND_AND_SOURCE]! & 0xffff) !== 0) this.#ownKind(endpoint);
    if (this.#byPath.size >= ENDPOINTS_KEPT) this.#byPath.clear();
    this.#byPath.set(path, endpoint);
    return endpoint;
  }

  #intern(endpoint: Endpoint): Endpoint {
    const key = `${endpoint} ${endpoint.sourcePort}`;
    const known = this.#byAddress.get(key);
    if (known) return known;
    if (this.#byAddress.size >= ENDPOINTS_KEPT) this.#byAddress.clear();
    this.#byAddress.set(key, endpoint);
    return endpoint;
  }
}

function sameGid(gid: Uint32Array, words: Uint32Array, at: number): boolean {
  return (
    gid[0] === words[at] &&
    gid[1] === words[at + 1] &&
    gid[2] === words[at + 2] &&
    gid[3] === words[at + 3]
  );
}
