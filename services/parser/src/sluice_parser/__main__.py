from sluice_parser.worker import main

if __name__ == "__main__":
    main()
