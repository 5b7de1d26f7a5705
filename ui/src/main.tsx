/**
 * The entry point of the web UI: a single page without external resources. All data from traffic is shown as text.
 */
import { render } from "preact";
import { App } from "./frame/app.tsx";
import { startKeys } from "./frame/keys.ts";
import { startRouter } from "./frame/router.ts";

startRouter();
startKeys();
const root = document.getElementById("app");
if (root) render(<App />, root);
