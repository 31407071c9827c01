/** Connects, says something in private data, and disconnects. */
import { connectTo, run } from './end.js';
import { decode, encode } from './private-data.js';

await run(
  async (request) => {
    console.log(`${request.peer.address} asks to be connected`);
    await using connection = await request.accept({ privateData: encode('welcome') });
    await connection.disconnected;
    console.log('disconnected');
  },
  async (server) => {
    await using connection = await connectTo(server);
    console.log(`the server says: ${decode(connection.privateData)}`);
  },
);
