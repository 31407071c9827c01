/**
 * A compiler transform: leaves authenticated packets (transport/packet-auth.ts) out of this build of
 * the engine. The demo's page has data channels, which DTLS authenticates, and counts its bytes.
 */
import { Transform } from 'assemblyscript/transform';
import { setConstant } from './set-constant.mjs';

export default class NoPacketAuthTransform extends Transform {
  afterParse(parser) {
    setConstant(parser, 'assembly/transport/packet-auth.ts', 'PACKET_AUTH', false);
  }
}
