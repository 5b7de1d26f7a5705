/**
 * Transfers one gigabyte in each direction through each program and measures the growth of its resident memory,
 * sampled every 20 ms.
 */
import { request } from "node:http";
import { residentBytes } from "../support/cpu.mjs";

const BLOCK = Buffer.alloc(256 * 1024, "u");

export async function largeBodies(contestants, bytes) {
  console.log(`\n${bytes / 1024 / 1024} MB down, then up: MB of resident memory above what it was before`);
  for (const { name, port, pid } of contestants) {
    const before = residentBytes(pid);
    let most = before;
    const timer = setInterval(() => {
      most = Math.max(most, residentBytes(pid));
    }, 20);
    await download(port, bytes);
    const down = most;
    await upload(port, bytes);
    clearInterval(timer);
    const grown = (value) => ((value - before) / 1024 / 1024).toFixed(0).padStart(4);
    console.log(`  ${name.padEnd(28)} ${grown(down)} ${grown(most)}   (was ${(before / 1024 / 1024).toFixed(0)})`);
  }
}

function download(port, bytes) {
  return new Promise((resolve, reject) => {
    let received = 0;
    request({ port, host: "127.0.0.1", path: `/large?${bytes}` }, (response) => {
      response.on("data", (chunk) => {
        received += chunk.length;
      });
      response.on("end", () => (received >= bytes ? resolve() : reject(new Error(`${received} bytes arrived`))));
    })
      .on("error", reject)
      .end();
  });
}

function upload(port, bytes) {
  return new Promise((resolve, reject) => {
    const outgoing = request({ port, host: "127.0.0.1", method: "PUT", path: "/" }, (response) => {
      response.resume();
      response.on("end", resolve);
    }).on("error", reject);
    let left = bytes;
    const more = () => {
      while (left > 0) {
        left -= BLOCK.length;
        if (!outgoing.write(BLOCK) && left > 0) {
          outgoing.once("drain", more);
          return;
        }
      }
      outgoing.end();
    };
    more();
  });
}
