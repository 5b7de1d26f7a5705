/** The default theme without its fonts: the system's fonts need no download and keep the site small. */
import theme from "vitepress/theme-without-fonts";
import "./style.css";

// biome-ignore lint/style/noDefaultExport: VitePress reads the default export.
export default theme;
