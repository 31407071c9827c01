/**
 * A compiler transform: leaves authenticated packets (transport/packet-auth.ts) out of this build.
 * The demo's page counts its bytes, and DTLS authenticates its data channels.
 */
import { Transform } from 'assemblyscript/transform';
import { setConstant } from './set-constant.mjs';

export default class NoPacketAuthTransform extends Transform {
  afterParse(parser) {
    setConstant(parser, 'assembly/transport/packet-auth.ts', 'PACKET_AUTH', false);
  }
}
