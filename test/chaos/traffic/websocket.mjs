/**
 * An upgraded connection: what is sent comes back, byte by byte.
 */
import { randomBytes } from "node:crypto";
import { connect } from "node:net";
import { Hang, WrongAnswer } from "../support/ledger.mjs";
import { newNonce, PATIENCE_MS } from "./ask.mjs";

export const websocket = {
  name: "websocket",
  once(world, random) {
    const sent = Buffer.from(newNonce().repeat(random.between(1, 2_000)));
    return new Promise((resolve, reject) => {
      const socket = connect(world.port, "127.0.0.1");
      let got = Buffer.alloc(0);
      let bodyFrom;
      const end = (error) => {
        clearTimeout(timer);
        socket.destroy();
        if (error) reject(error);
        else resolve();
      };
      const timer = setTimeout(() => end(new Hang(`no echo within ${PATIENCE_MS} ms`)), PATIENCE_MS);
      socket.on("error", (error) => end(new Error(error.code ?? error.message)));
      socket.on("close", () => end(new Error("closed before the echo was whole")));
      socket.on("data", (chunk) => {
        got = Buffer.concat([got, chunk]);
        if (bodyFrom === undefined) {
          const headEnd = got.indexOf("\r\n\r\n");
          if (headEnd < 0) return;
          const status = got.subarray(9, 12).toString();
          if (status !== "101") return end(new Error(`answered ${status}`));
          bodyFrom = headEnd + 4;
          socket.write(sent);
        }
        const echo = got.subarray(bodyFrom);
        if (!sent.subarray(0, echo.length).equals(echo)) end(new WrongAnswer("another echo than what was sent"));
        else if (echo.length === sent.length) end();
      });
      const key = randomBytes(16).toString("base64");
      socket.write(
        `GET /web/socket HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: ${key}\r\n\r\n`,
      );
    });
  },
};
