import assert from "node:assert/strict";
import { test } from "node:test";
import { rejectionReason } from "./server.ts";

const own = {
  method: "GET",
  path: "/config_dump",
  host: "localhost:15000",
  origin: undefined,
  fetchSite: undefined,
  fetchMode: undefined,
  localAddress: "127.0.0.1",
};

const allowed = [
  { name: "a loopback name", change: {} },
  { name: "an IPv6 loopback address", change: { host: "[::1]:15000", localAddress: "::1" } },
  { name: "another port, as through a tunnel", change: { host: "127.0.0.1:9" } },
  { name: "the socket's own address", change: { host: "10.0.0.5:15000", localAddress: "10.0.0.5" } },
  { name: "the page's own origin", change: { origin: "http://localhost:15000", fetchSite: "same-origin" } },
  { name: "any Host on a unix socket", change: { host: "whatever", localAddress: undefined } },
  {
    name: "a link from elsewhere to the UI",
    change: { path: "/ui/requests", fetchSite: "cross-site", fetchMode: "navigate" },
  },
];
for (const { name, change } of allowed) {
  test(`allows ${name}`, () => assert.equal(rejectionReason({ ...own, ...change }), undefined));
}

const rejected = [
  { name: "another host (DNS rebinding)", change: { host: "evil.example" } },
  { name: "no Host", change: { host: undefined } },
  { name: "a name that begins like ours", change: { host: "localhost.evil.example" } },
  { name: "another address of the machine", change: { host: "10.0.0.6:15000", localAddress: "10.0.0.5" } },
  { name: "another origin", change: { origin: "https://evil.example" } },
  { name: "the origin null", change: { origin: "null" } },
  { name: "another port's origin", change: { origin: "http://localhost:3000" } },
  { name: "a cross-site fetch", change: { fetchSite: "cross-site", fetchMode: "no-cors" } },
  { name: "a same-site fetch", change: { fetchSite: "same-site" } },
  { name: "a link from elsewhere to an endpoint", change: { fetchSite: "cross-site", fetchMode: "navigate" } },
  {
    name: "a link from elsewhere to the UI's API",
    change: { path: "/ui/api/config_dump", fetchSite: "cross-site", fetchMode: "navigate" },
  },
  {
    name: "a form from elsewhere to the UI",
    change: { method: "POST", path: "/ui", fetchSite: "cross-site", fetchMode: "navigate" },
  },
  {
    name: "a link to the UI through another host",
    change: { host: "evil.example", path: "/ui", fetchSite: "cross-site", fetchMode: "navigate" },
  },
];
for (const { name, change } of rejected) {
  test(`rejects ${name} [N1]`, () => assert.notEqual(rejectionReason({ ...own, ...change }), undefined));
}
