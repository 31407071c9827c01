/**
 * A compiler transform: leaves out of the demo page's engine what its data channels do not need:
 * authenticated packets (DTLS authenticates), trials of the path MTU (SCTP cuts messages), and the
 * local path (its peers are other pages). The demo's page counts its bytes.
 */
import { Transform } from 'assemblyscript/transform';
import { setConstant } from './set-constant.mjs';

export default class PageTransform extends Transform {
  afterParse(parser) {
    setConstant(parser, 'assembly/transport/shared/packet-auth.ts', 'PACKET_AUTH', false);
    setConstant(parser, 'assembly/transport/requester/path-mtu.ts', 'PATH_MTU_TRIALS', false);
    setConstant(parser, 'assembly/memory/local-endpoint.ts', 'LOCAL_PATH', false);
  }
}
