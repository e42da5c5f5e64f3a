// The fonts are those of the reader's system: nothing to load.
import theme from "vitepress/theme-without-fonts";
import "./style.css";

export default theme;
