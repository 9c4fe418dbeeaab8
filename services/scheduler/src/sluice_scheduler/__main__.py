from sluice_scheduler.main import main

if __name__ == "__main__":
    main()
