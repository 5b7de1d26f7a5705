/**
 * Measures the resident memory per idle connection of the process in front, after one request on each.
 */
import { connect } from "node:net";
import { residentBytes } from "./cpu.mjs";
import { httpRequest } from "./load.mjs";

const AT_ONCE = 100;
/** One client address may have only half of a listener's connections. */
const ADDRESSES = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"];
const SETTLE_MS = 3000;

/** Resolves with the kilobytes per connection by the contestant's name. */
export async function idleConnections(contestants, count) {
  const values = {};
  console.log(`\n${count} idle connections: KB of resident memory for each`);
  for (const { name, port, pid } of contestants) {
    // The first ones make the process grow to its working size.
    await closeAll(await openIdle(port, 500));
    const before = residentBytes(pid);
    const sockets = await openIdle(port, count);
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    const each = (residentBytes(pid) - before) / 1024 / count;
    console.log(`  ${name.padEnd(28)} ${each.toFixed(1)}`);
    values[name] = each;
    await closeAll(sockets);
  }
  return values;
}

async function openIdle(port, count) {
  const sockets = [];
  for (let i = 0; i < count; i += AT_ONCE)
    sockets.push(
      ...(await Promise.all(Array.from({ length: AT_ONCE }, (_, j) => openOne(port, ADDRESSES[j % ADDRESSES.length])))),
    );
  return sockets;
}

function openOne(port, localAddress) {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: "127.0.0.1", localAddress });
    socket.once("error", reject);
    socket.once("data", () => {
      socket.pause();
      resolve(socket);
    });
    socket.write(httpRequest({}));
  });
}

function closeAll(sockets) {
  return Promise.all(
    sockets.map(
      (socket) =>
        new Promise((resolve) => {
          socket.once("close", resolve);
          socket.destroy();
        }),
    ),
  );
}
