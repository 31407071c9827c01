/** Connects, says something in private data, and disconnects. */
import { connectTo, decode, encode, run } from './end.js';

await run(
  async (request) => {
    console.log(`${request.peer.address} asks to be connected`);
    const connection = await request.accept({ privateData: encode('welcome') });
    await connection.disconnected;
    await connection.close();
    console.log('disconnected');
  },
  async (server) => {
    await using connection = await connectTo(server);
    console.log(`the server says: ${decode(connection.privateData)}`);
  },
);
