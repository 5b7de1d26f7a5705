/**
 * Which HTTP is spoken: `http2` of a gateway, `protocol` of a backend.
 */
import { z } from "zod";

export const acceptsHttp2 = z
  .boolean()
  .default(true)
  .describe("Accepts HTTP/2: by ALPN over TLS, with prior knowledge (h2c) without. `false`: HTTP/1.1 only.");

export const backendProtocol = z
  .enum(["http1", "h2", "h2c", "auto"])
  .describe(
    "Of `host` and `service`: `h2` is HTTP/2 over TLS, `h2c` without, `auto` HTTP/2 where the server chooses it by ALPN. Default: `http1`.",
  );

/** Arguments of `refine` for an entry of `backends`. */
export const onlyHttpBackends: [check: (value: object) => boolean, problem: { message: string; path: string[] }] = [
  (value) => !("protocol" in value) || value.protocol === undefined || "host" in value || "service" in value,
  { message: "only `host` and `service` backends have a protocol", path: ["protocol"] },
];
