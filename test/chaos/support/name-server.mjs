/**
 * A DNS server for the one name that the configuration uses, on a loopback address of its own. It can be told to
 * answer with a failure, with "no such name", or not at all. Needs port 53, therefore root; without it the
 * configuration uses an address and the faults of names are left out.
 */
import { createSocket } from "node:dgram";

export const NAME = "web.chaos.test";
const ADDRESS = "127.77.0.1";
const FAILURE = 2;
const NO_SUCH_NAME = 3;

export async function openNameServer() {
  const socket = createSocket("udp4");
  let mood = "answers";
  socket.on("message", (question, { port, address }) => {
    if (mood !== "silent") socket.send(answerTo(question, mood), port, address);
  });
  await new Promise((resolve, reject) => {
    socket.once("error", reject);
    socket.bind(53, ADDRESS, resolve);
  });
  return {
    resolverConfig: `nameserver ${ADDRESS}\noptions timeout:1 attempts:1\n`,
    /** `answers`, `fails`, `denies` or `silent`. */
    set(next) {
      mood = next;
    },
    close: () => socket.close(),
  };
}

/** One question in, 127.0.0.1 out (RFC 1035, 4.1); a question for IPv6 has no answer. */
function answerTo(question, mood) {
  const code = { fails: FAILURE, denies: NO_SUCH_NAME }[mood] ?? 0;
  const endOfName = question.indexOf(0, 12);
  const type = question.readUInt16BE(endOfName + 1);
  const asked = question.subarray(12, endOfName + 5);
  const hasAnswer = code === 0 && type === 1;
  const head = Buffer.from([0x81, 0x80 | code, 0, 1, 0, hasAnswer ? 1 : 0, 0, 0, 0, 0]);
  const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
  return Buffer.concat([question.subarray(0, 2), head, asked, ...(hasAnswer ? [record] : [])]);
}
