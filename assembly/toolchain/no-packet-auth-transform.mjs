/**
 * A compiler transform: leaves authenticated packets (shared/packet-auth.ts) out of this build.
 * The demo's page counts its bytes, and DTLS authenticates its data channels.
 */
import { Transform } from 'assemblyscript/transform';
import { setConstant } from './set-constant.mjs';

export default class NoPacketAuthTransform extends Transform {
  afterParse(parser) {
    setConstant(parser, 'assembly/transport/shared/packet-auth.ts', 'PACKET_AUTH', false);
  }
}
