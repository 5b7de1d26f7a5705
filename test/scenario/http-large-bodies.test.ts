/**
 * Large bodies through the gateway: memory stays bounded, and a slow reader holds the sender back.
 */
import assert from "node:assert/strict";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { test } from "node:test";
import { openRawClient } from "../support/raw-client.ts";
import { behindGateway } from "../support/scenario.ts";
import { untilStill } from "../support/stillness.ts";

function send(port: number, method: string, path: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    httpRequest({ port, method, path }, resolve).once("error", reject).end();
  });
}

async function textOf(response: IncomingMessage): Promise<string> {
  let text = "";
  for await (const part of response) text += String(part);
  return text;
}

test("400 MB down and 400 MB up pass with memory bounded [R33]", async (t) => {
  const total = 400 * MIB;
  const chunk = Buffer.alloc(256 * 1024, 7);
  let uploaded = 0;
  const { gateway } = await behindGateway(t, (req, res) => {
    if (req.method === "POST") {
      req.on("data", (part: Buffer) => {
        uploaded += part.length;
      });
      req.on("end", () => res.end(String(uploaded)));
      return;
    }
    let left = total;
    const more = (): void => {
      while (left > 0) {
        left -= chunk.length;
        if (!res.write(chunk)) {
          res.once("drain", more);
          return;
        }
      }
      res.end();
    };
    more();
  });
  const before = process.memoryUsage().rss;
  let peak = before;
  const watch = setInterval(() => {
    peak = Math.max(peak, process.memoryUsage().rss);
  }, 20);
  t.after(() => clearInterval(watch));

  let downloaded = 0;
  const down = await send(gateway.port(), "GET", "/down");
  for await (const part of down) downloaded += (part as Buffer).length;
  assert.equal(downloaded, total);

  const up = httpRequest({ port: gateway.port(), method: "POST", path: "/up" });
  const answered = new Promise<IncomingMessage>((resolve, reject) =>
    up.once("response", resolve).once("error", reject),
  );
  for (let left = total; left > 0; left -= chunk.length) {
    if (!up.write(chunk)) await new Promise((resolve) => up.once("drain", resolve));
  }
  up.end();
  assert.equal(await textOf(await answered), String(total));
  // Client, gateway and backend share this process, and newer versions of Node let more wait for the collector; what one
  // of them would hold whole shows all the same.
  const grown = (peak - before) / MIB;
  t.diagnostic(`RSS grew by ${grown.toFixed(0)} MB`);
  assert.ok(grown < 200, `RSS grew by ${grown.toFixed(0)} MB`);
});

test("a client that does not read holds the backend back instead of filling memory [R32]", async (t) => {
  let written = 0;
  const chunk = Buffer.alloc(64 * 1024, 1);
  const { gateway } = await behindGateway(t, (_req, res) => {
    const more = (): void => {
      while (written < 200 * MIB) {
        written += chunk.length;
        if (!res.write(chunk)) {
          res.once("drain", more);
          return;
        }
      }
    };
    more();
  });
  const client = openRawClient(gateway.port());
  client.socket.pause();
  client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  await untilStill(() => written);
  assert.ok(written < 30 * MIB, `the backend could write ${written / MIB} MiB`);
  client.close();
});

const MIB = 1024 * 1024;
