/**
 * The web UI: one page, no outside resources, everything from traffic shown as text.
 */
import { render } from "preact";
import { App } from "./frame/app.tsx";
import { startKeys } from "./frame/keys.ts";
import { startRouter } from "./frame/router.ts";

startRouter();
startKeys();
const root = document.getElementById("app");
if (root) render(<App />, root);
